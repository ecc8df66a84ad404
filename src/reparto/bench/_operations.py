"""Which operations took the time of a step, in words. Pure.

aten::addmm 4.1 ms, aten::mm 7.9 ms, …, Optimizer.step#Adam.step 2.0 ms
  └────── kinds: products of matrices 68 %, the optimizer 14 %, … ──► sentences
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from reparto.bench._table import per_cent, seconds

#: The first that fits says what an operation is; names are those of torch and of GPU kernels.
_KINDS = (
    ("products of matrices", r"mm\b|addmm|bmm|matmul|linear|gemm|cublas|cutlass|nvjet"),
    ("convolutions", r"conv|cudnn|winograd|implicit_gemm"),
    ("the optimizer", r"adam|_foreach|addcdiv|addcmul|lerp|sgd|multi_tensor|optimizer"),
    ("copies", r"copy|memcpy|_to_copy|\bto\b|memset|fill|zero"),
    ("attention", r"attention|flash|softmax"),
    ("normalisation", r"norm"),
    ("pooling", r"pool"),
    ("dropout and other random numbers", r"dropout|bernoulli|rand|philox"),
    ("recurrent layers", r"lstm|gru|rnn"),
    ("losses", r"loss"),
    ("work element by element", r"relu|tanh|sigmoid|gelu|threshold|add|mul|sub|div|elementwise"),
    ("sums", r"sum|mean|reduce"),
)
_MOST, _NAMED = 5, 2
_LEAST = 0.01


def kind_of(name: str) -> str:
    """What an operation does, in words.

    Example:
        >>> kind_of("aten::addmm"), kind_of("aten::threshold_backward"), kind_of("aten::view")
        ('products of matrices', 'work element by element', 'other operations')
    """
    for kind, pattern in _KINDS:
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "other operations"


def in_words(times: Mapping[str, float], step_s: float, device: str) -> tuple[str, ...]:
    """Say where the time of a step went.

    Args:
        times: Seconds that the device spent in each operation itself, a step.
        step_s: Of a step, by the clock.
        device: Where.

    Example:
        >>> in_words({"aten::mm": 0.006, "aten::relu": 0.002}, 0.010, "cpu")
        ('75 % products of matrices (mm), 25 % work element by element (relu)',)
    """
    busy_s = sum(times.values())
    if busy_s <= 0:
        return ("no operation was seen",)
    kinds: dict[str, dict[str, float]] = defaultdict(dict)
    for name, spent in times.items():
        kinds[kind_of(name)][name] = spent
    ranked = sorted(kinds.items(), key=lambda one: -sum(one[1].values()))
    parts = [
        f"{per_cent(sum(own.values()) / busy_s)} {kind} ({_names(own)})"
        for kind, own in ranked[:_MOST]
        if sum(own.values()) >= _LEAST * busy_s
    ]
    told = [", ".join(parts)]
    if device.startswith("cuda") and step_s > 0:
        idle = 1 - busy_s / step_s
        if idle > 0.1:
            told.append(
                f"the GPU waited for {per_cent(idle)} of the {seconds(step_s)} of a step: "
                "Python could not ask for work as fast as it was done"
            )
    return tuple(told)


def _names(own: Mapping[str, float]) -> str:
    ranked = sorted(own, key=lambda name: -own[name])[:_NAMED]
    return ", ".join(_short(ranked))


def _short(names: Iterable[str]) -> list[str]:
    cut = [re.sub(r"^(aten::|void |at::native::)+", "", name) for name in names]
    return [name if len(name) <= 32 else f"{name[:31]}…" for name in cut]
