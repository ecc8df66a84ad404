"""Functions of torch's that draw inside: under ``verify`` their calls are seen one by one.

Attention with weights drops some of them inside of one function. As one call it would draw on
the GPU, so it is made with its own calls passing to the engine, where `_drawn` meets the dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F

#: What is opened.
OPENED: frozenset[Any] = frozenset([F.multi_head_attention_forward, F.gumbel_softmax])
#: How those ask whether anybody listens.
QUESTIONS = ("has_torch_function", "has_torch_function_unary")


class Opening:
    """Makes calls of functions as if nobody listened to the functions, only to what they do."""

    def __init__(self) -> None:
        self._is_asked_next = False

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; the first thing that the function does is to ask."""
        self._is_asked_next = True
        try:
            return func(*args, **kwargs)
        finally:
            self._is_asked_next = False

    def answering(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """One of `QUESTIONS`, in ``torch.nn.functional``."""

        def has_torch_function(*args: Any) -> bool:
            if self._is_asked_next:
                self._is_asked_next = False
                return False
            return original(*args)

        return has_torch_function
