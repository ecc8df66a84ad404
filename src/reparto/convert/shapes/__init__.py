"""Script shapes: what people write, and what is to be done about it. One file each.

A shape is a module of this folder with an ``ORDER`` (small ones are asked first) and a
``find(facts) -> Decision``. To add one, add its file; nothing else names it. Shapes decide;
they neither gather (``convert.gather`` does) nor edit (``convert.rewrite`` does).

    0-9     is there anything to do at all?   distributed
    10-19   who is prepared                   loaders models optimizers
    20-49   where the batch is shared out     draws slices splits generators model_calls functional
    50-59   what must be decided together     clocks
    60-79   what is only reported             loops reductions side_effects
    80-99   what cannot be shared out         environments gradient_free one_sample no_training
"""

from reparto.convert.shapes._base import Decision, every_shape

__all__ = ["Decision", "every_shape"]
