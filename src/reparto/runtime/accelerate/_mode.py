"""Mode: torch functions of the script come here, wherever they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.overrides import TorchFunctionMode

from reparto.runtime.accelerate._calls import QUIET
from reparto.runtime.accelerate._compare import MISS

if TYPE_CHECKING:
    from reparto.runtime.accelerate._engine import Engine


class Mode(TorchFunctionMode):
    """Hands every call of the script to the comparison whose turn it is, or to the engine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._turn, self._call = engine.turn, engine.call

    def let_go(self) -> None:
        """Make every call as torch does from now on."""
        self._call = lambda func, args, kwargs: func(*args, **kwargs)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        compare = self._turn.compare
        if compare is not None:
            answer = compare(func, args, kwargs)
            if answer is not MISS:
                return answer
        if func in QUIET:
            return func(*args, **(kwargs or {}))
        return self._call(func, args, kwargs or {})
