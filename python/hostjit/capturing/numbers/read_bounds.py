# SPDX-License-Identifier: Apache-2.0
"""Slices by numbers that code reads from tensors: `x[:n]`, `x[:, -n:] = y`.

What Python makes of such a bound depends on its sign and on the size of the dim. As a function of
them that Python computes it is one program for all of these.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import SymInt
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lists import SliceVariable, TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch.fx import Node, Proxy
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from hostjit.capturing.dynamo.method_handlers import replaced_handler
from hostjit.capturing.numbers.functions import slice_length, slice_start
from hostjit.capturing.numbers.python_functions import MadeOf
from hostjit.replacements import replaced_attribute

__all__ = ["clamping_read_bounds"]


@contextlib.contextmanager
def clamping_read_bounds(made: Mapping[Any, MadeOf]) -> Iterator[None]:
    """Have Dynamo compute start and length of such slices, in this thread.

    `made`: numbers that are made of others, or read, by their symbols.
    """
    owner = threading.get_ident()
    call_builtin = BuiltinVariable.call_function

    def builtin(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner and self.fn is operator.getitem and len(args) == 2:
            args = [args[0], _clamped(tx, args[0], args[1], made)]
        return call_builtin(self, tx, args, kwargs)

    def setting(follow: Callable[..., Any]) -> Callable[..., Any]:
        def setitem(self: Any, tx: Any, key: Any, value: Any) -> Any:
            if threading.get_ident() == owner:
                key = _clamped(tx, self, key, made)
            return follow(self, tx, key, value)

        return setitem

    with (
        replaced_attribute(BuiltinVariable, "call_function", builtin),
        replaced_handler(TensorVariable, "__setitem__", setting),
    ):
        yield


def _clamped(tx: Any, tensor: Any, index: Any, made: Mapping[Any, MadeOf]) -> Any:
    """Return an index whose slices say what is in the tensor."""
    if not made or not isinstance(tensor.realize(), TensorVariable):
        return index
    is_tuple = isinstance(index, TupleVariable)
    items = list(index.items) if is_tuple else [index]
    taken = [_dims_taken(item) for item in items]
    dims = tensor.as_proxy().node.meta["example_value"].dim()
    if None in taken or taken.count(-1) > 1:
        return index
    rest = dims - sum(count for count in taken if count is not None and count > 0)
    dim = 0
    for place, (item, count) in enumerate(zip(items, taken, strict=True)):
        if isinstance(item, SliceVariable) and dim < dims and _is_read(item, made):
            size = tensor.call_method(tx, "size", [ConstantVariable.create(dim)], {})
            if not _is_clamped(item, size, made):
                items[place] = _clamped_slice(tx, item, size)
        dim += rest if count == -1 else count or 0
    return TupleVariable(items) if is_tuple else items[0]


def _dims_taken(item: Any) -> int | None:
    """How many dims an item of an index is about; -1 for the rest, None for no plain one."""
    if isinstance(item, (SliceVariable, SymNodeVariable)):
        return 1
    if isinstance(item, ConstantVariable):
        value = item.as_python_constant()
        return {int: 1, type(None): 0, type(Ellipsis): -1}.get(type(value))
    return 1 if isinstance(item, TensorVariable) and not _is_mask(item) else None


def _is_mask(tensor: Any) -> bool:
    return str(tensor.dtype) in ("torch.bool", "torch.uint8", "None")


def _is_read(item: Any, made: Mapping[Any, MadeOf]) -> bool:
    """Whether a slice without steps has a bound that was read, or is made of what was."""
    *bounds, step = item.items
    if not isinstance(step, ConstantVariable) or step.as_python_constant() not in (None, 1):
        return False
    if not all(isinstance(bound, (ConstantVariable, SymNodeVariable)) for bound in bounds):
        return False
    numbers = [bound.sym_num for bound in bounds if isinstance(bound, SymNodeVariable)]
    return any(not made.keys().isdisjoint(number.node.expr.free_symbols) for number in numbers)


def _is_clamped(item: Any, size: Any, made: Mapping[Any, MadeOf]) -> bool:
    """Whether a slice is such a one already, of a dim of this size."""
    first, stop, _ = (_number(bound) for bound in item.items)
    made_of = None if stop is None else made.get(stop - (first or 0))
    if made_of is None or made_of.function is not slice_length:
        return False
    return bool(_expression(made_of.operands[-1]) == _number(size))


def _number(variable: Any) -> Any:
    """A number, or how a symbolic one is made."""
    if isinstance(variable, ConstantVariable):
        return variable.as_python_constant()
    return variable.sym_num.node.expr


def _clamped_slice(tx: Any, item: Any, size: Any) -> Any:
    first, stop, step = item.items
    first = ConstantVariable.create(0) if _is_none(first) else first
    stop = size if _is_none(stop) else stop
    operands = tuple(variable.as_proxy() for variable in (first, stop, size))
    length = _computed(tx, slice_length, operands)
    _decide(tx.output.shape_env, length.sym_num)
    if isinstance(first, ConstantVariable) and first.as_python_constant() == 0:
        return SliceVariable([first, length, step])
    begin = _computed(tx, slice_start, operands)
    end = BuiltinVariable(operator.add).call_function(tx, [begin, length], {})
    return SliceVariable([begin, end, step])


def _computed(tx: Any, function: Callable[..., int], operands: tuple[Any, ...]) -> Any:
    """Return the number that a function makes: the one before, where it was made of the same.

    So the slices of `x[n:] += y` are known to be one.
    """
    wanted = [_expression(operand) for operand in operands]
    tracer = tx.output.current_tracer
    for node in tracer.graph.find_nodes(op="call_function", target=function):
        if [_expression(operand) for operand in node.args] == wanted:
            number = node.meta["example_value"]
            return SymNodeVariable.create(tx, Proxy(node, tracer), number)
    proxy = tx.output.create_proxy("call_function", function, operands, {})
    return SymNodeVariable.create(tx, proxy)


def _expression(operand: Any) -> Any:
    """The number of a node or a proxy, or how a symbolic one is made."""
    node = operand.node if isinstance(operand, Proxy) else operand
    number = node.meta["example_value"] if isinstance(node, Node) else node
    return number.node.expr if isinstance(number, SymInt) else number


def _decide(environment: Any, length: Any) -> None:
    """Make 0, 1 and other lengths three programs, as they are of open sizes."""
    now = length.node.hint
    if now > 1:
        symbol = length.node.expr
        environment.var_to_range[symbol] &= ValueRanges(2, int_oo)
    else:
        assert length == now


def _is_none(variable: Any) -> bool:
    return isinstance(variable, ConstantVariable) and variable.as_python_constant() is None
