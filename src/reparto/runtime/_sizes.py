"""Whether code hands the batch size to somebody who uses it as a number without our notice.

A BatchInt notices arithmetic of its own: ``n / 2``, ``n == 7``, ``int(n)``. It does not notice
what happens in C with an int on the right: ``tensor / n``, ``math.log(n)``, ``range(n)``. In a
region ``n`` would be this worker's number of rows there. So the text of a module's functions is
looked at: a batch size may stand where it says how something is *shaped*, and nowhere else.

    b, t = x.shape            a size, by the dimension of the batch
    x.view(b, -1)             shapes
    torch.zeros(b, 4)         shapes
    x[:b]                     shapes
    b * heads                 still a size
    self.kl / b               uses it
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import Any

_SHAPING = frozenset(
    "view reshape expand repeat tile unflatten resize new_zeros new_ones new_empty zeros ones "
    "empty rand randn arange split narrow".split()
)
_SHAPING_BY_LIST = frozenset("full new_full randint normal".split())  # also take a value
_OTHERS = ("np", "numpy", "math", "random", "itertools")  # whose functions take plain numbers
_ASKING = frozenset("size shape len numel nelement".split())


@functools.lru_cache(maxsize=4096)
def uses_batch_size(function: Any, dims: frozenset[int]) -> bool:
    """Whether a function may use the size of one of these dimensions as a number."""
    if not _ASKING & set(function.__code__.co_names):
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return True  # nobody can tell
    return _Reader(tree, dims).finds_use()


class _Reader:
    """Reads one function.

    Args:
        tree: Its syntax.
        dims: The dimensions that are the batch in one of its tensors.
    """

    def __init__(self, tree: ast.Module, dims: frozenset[int]) -> None:
        self._nodes = list(ast.walk(tree))
        self._parents = {
            child: node for node in self._nodes for child in ast.iter_child_nodes(node)
        }
        self._dims = dims
        self._sizes: set[str] = set()
        self._numbers: set[str] = set()
        self._shapes: set[str] = set()
        for node in self._nodes:  # in the order of the text, more or less
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)

    def finds_use(self) -> bool:
        """Whether a size stands where it does not only shape something."""
        for node in self._nodes:
            if not isinstance(node, ast.expr) or isinstance(getattr(node, "ctx", None), ast.Store):
                continue
            if self._is_whole_shape(node) and not self._is_harmless(node):
                return True
            if self._is_size(node) and not self._only_shapes(node):
                return True
        return False

    def _is_whole_shape(self, node: ast.expr) -> bool:
        match node:
            case ast.Attribute(attr="shape"):
                return True
            case ast.Call(func=ast.Attribute(attr="size"), args=[]):
                return True
            case ast.Name(id=name):
                return name in self._shapes
        return False

    def _is_harmless(self, shape: ast.expr) -> bool:
        """Whether a whole shape is only taken apart here, or shapes something."""
        parent = self._parents.get(shape)
        if isinstance(parent, ast.Starred):
            shape, parent = parent, self._parents.get(parent)
        match parent:
            case ast.Subscript() | ast.Assign() | ast.Expr() | ast.Compare() | ast.Attribute():
                return True
            case ast.Call():
                return _called(parent) in (_SHAPING | _SHAPING_BY_LIST | {"len"})
            case ast.keyword(arg="size") | ast.FormattedValue():
                return True
        return False

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            if self._is_whole_shape(value):
                self._shapes.add(target.id)
            elif self._is_size(value):
                self._sizes.add(target.id)
            elif self._is_number(value):
                self._numbers.add(target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if self._is_whole_shape(value):
                for at, one in enumerate(target.elts):
                    name = one.value if isinstance(one, ast.Starred) else one
                    if isinstance(name, ast.Name):
                        known = self._sizes if at in self._dims else self._numbers
                        known.add(name.id)
            elif isinstance(value, (ast.Tuple, ast.List)):
                for one, part in zip(target.elts, value.elts, strict=False):
                    self._assign(one, part)

    def _is_size(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self._sizes
            case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=dim)]):
                return dim in self._dims
            case ast.Call(func=ast.Attribute(attr="size"), args=[_]):
                return True
            case ast.Call(func=ast.Attribute(attr="numel" | "nelement")):
                return True
            case ast.Call(func=ast.Name(id="len"), args=[inner]):
                return 0 in self._dims and not self._is_whole_shape(inner)
            case ast.Subscript(value=inner, slice=ast.Constant(value=dim)):
                return self._is_whole_shape(inner) and dim in self._dims
            case ast.Subscript(value=inner, slice=ast.Name()):
                return self._is_whole_shape(inner)
            case ast.BinOp(left=left, op=ast.Mult() | ast.FloorDiv(), right=right):
                return self._is_size(left) or (self._is_size(right) and self._is_number(left))
        return False

    def _is_number(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.Name(id=name):
                return name in self._numbers or name in self._sizes
            case ast.Call(func=ast.Attribute(attr="size")):
                return True
            case ast.Subscript(value=inner):
                return self._is_whole_shape(inner)
        return False

    def _only_shapes(self, node: ast.expr) -> bool:
        parent = self._parents.get(node)
        match parent:
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                return all(isinstance(one, (ast.Name, ast.Tuple, ast.List)) for one in targets)
            case ast.Expr() | ast.FormattedValue() | ast.UnaryOp() | ast.Slice() | ast.Assert():
                return True  # unused, or noticed, or the bound of a slice
            case ast.BinOp():
                return parent.left is node or self._is_number(parent.left)
            case ast.Compare():
                return parent.left is node or self._is_number(parent.left)
            case ast.Tuple() | ast.List() | ast.Starred():
                above = self._parents.get(parent)
                if isinstance(above, ast.Assign):
                    return True
                return isinstance(above, ast.Call) and _called(above) in (
                    _SHAPING | _SHAPING_BY_LIST
                )
            case ast.Call():
                return _called(parent) in _SHAPING
            case ast.keyword(arg="size"):
                return True
            case ast.Attribute() | ast.Subscript():
                return isinstance(node, ast.Name) is False
        return False


def _called(call: ast.Call) -> str:
    func = call.func
    if not isinstance(func, ast.Attribute):
        return str(getattr(func, "id", ""))
    return "" if getattr(func.value, "id", "") in _OTHERS else func.attr.rstrip("_")
