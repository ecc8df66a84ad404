"""From a sequential training script to one that workers share out.

script ──gather──► Facts ──shapes──► Decision ──rewrite──► Program
         (look)            (decide)             (edit)

gather/   facts: sources, scopes, values, effects, loops; changes nothing
shapes/   one file for each thing that people write; decides what is to be done
rewrite/  carries out edits in the text; decides nothing
"""

from reparto.convert._convert import accelerate, convert
from reparto.convert._diff import diff
from reparto.convert._result import Converted, Refused, Result, Unchanged

__all__ = ["Converted", "Refused", "Result", "Unchanged", "accelerate", "convert", "diff"]
