# SPDX-License-Identifier: Apache-2.0
"""Functions of open numbers, as Python computes them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.source import ConstantSource
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.functions import UserFunctionVariable
from torch._dynamo.variables.lists import BaseListVariable, TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.fx.experimental.symbolic_shapes import DimDynamic

from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.numbers.functions import PYTHON_FUNCTIONS, bit_length
from hostjit.capturing.numbers.numpy_functions import NUMPY_FUNCTIONS
from hostjit.replacements import replaced_attribute

__all__ = [
    "MadeOf",
    "made_in",
    "new_number",
    "number_functions_of_python",
    "without_guards_on",
]


# The same for what symbols have, but kernels or sizes do not: by what stands for it in graphs.
_OF_FLOATS: dict[Any, Callable[..., Any]] = {
    torch.sym_int: int,
    math.floor: math.floor,
    math.ceil: math.ceil,
    math.trunc: math.trunc,
    round: round,
    "__round__": round,
    operator.floordiv: operator.floordiv,
    operator.mod: operator.mod,
    torch._sym_log2: math.log2,  # type: ignore[attr-defined]
}
_TEXTS = (str, repr, ascii, format, str.format)
_OF_NUMPY = frozenset(NUMPY_FUNCTIONS.values())
# The same of ints. As a result what they make may have more bits than a program can be given.
_OF_INTS: frozenset[Any] = frozenset(
    {operator.and_, operator.or_, operator.xor, operator.rshift, operator.lshift, operator.pow}
)


@dataclasses.dataclass(frozen=True, eq=False)
class MadeOf:
    """How a number was computed when it was traced; Dynamo's graph may have forgotten it.

    Attributes:
        function: by what stands for it in graphs.
        operands: numbers, and how others were computed.
        value: the symbolic number.
    """

    function: Any
    operands: tuple[Any, ...]
    value: Any


@contextlib.contextmanager
def number_functions_of_python(*, breaks_at_texts: bool = False) -> Iterator[dict[Any, MadeOf]]:
    """Have Dynamo follow such functions, in this thread; yields their results by symbols.

    `breaks_at_texts`: it goes on behind texts that are made of open numbers. Else a program has to
    be for one value of each.
    """
    owner = threading.get_ident()
    made: dict[Any, MadeOf] = {}
    call_builtin = BuiltinVariable.call_function
    call_function = TorchInGraphFunctionVariable.call_function
    original_format = InstructionTranslatorBase._format_value
    create_number = SymNodeVariable.create.__func__  # type: ignore[attr-defined]
    call_method = SymNodeVariable.call_method

    def stop_at_text() -> None:
        if not breaks_at_texts:
            raise refusal("a string is made of a number")
        unimplemented(
            gb_type="text of a number",
            context="",
            explanation="A text is made of a number of which there may be any value.",
            hints=[],
        )

    def builtin(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return call_builtin(self, tx, args, kwargs)
        if self.fn in _TEXTS and any(map(_holds_open_number, args)):
            stop_at_text()
        if kwargs:
            return call_builtin(self, tx, args, kwargs)
        if self.fn is divmod and len(args) == 2 and _are_open_numbers(args):
            parts = (operator.floordiv, operator.mod)
            made = [call_builtin(BuiltinVariable(part), tx, args, {}) for part in parts]
            return TupleVariable(made)
        if self.fn is sorted and _are_sorted(args):
            sort: Any = _sorted
            return tx.inline_user_function_return(UserFunctionVariable(sort), args, {})
        return call_builtin(self, tx, _with_known_bools(args), kwargs)

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return call_function(self, tx, args, kwargs)
        if self.value not in PYTHON_FUNCTIONS or kwargs or not _are_open_numbers(args):
            return call_function(self, tx, _with_known_bools(args), kwargs)
        operands = tuple(argument.as_proxy() for argument in args)
        return SymNodeVariable.create(
            tx, tx.output.create_proxy("call_function", self.value, operands, {})
        )

    def method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        is_length = name == "bit_length" and not args and self.python_type() is int
        if threading.get_ident() != owner or not is_length:
            return call_method(self, tx, name, args, kwargs)
        operands = (self.as_proxy(),)
        proxy = tx.output.create_proxy("call_function", bit_length, operands, {})
        return SymNodeVariable.create(tx, proxy)

    def create(cls: Any, /, tx: Any, proxy: Any, sym_num: Any = None, **options: Any) -> Any:
        if threading.get_ident() == owner and _is_made_by_python(proxy.node):
            proxy.node.meta.pop("example_value", None)
            sym_num = _new_number(tx.output.shape_env, proxy.node, len(made))
            made[sym_num.node.expr] = _made_of(proxy.node, sym_num, made)
        return create_number(cls, tx, proxy, sym_num, **options)

    def format_value(self: Any, *args: Any) -> None:
        if threading.get_ident() == owner and _holds_open_number(self.stack[-1], itself=True):
            stop_at_text()  # Dynamo may forget to make it
        original_format(self, *args)

    with (
        replaced_attribute(InstructionTranslatorBase, "_format_value", format_value),
        replaced_attribute(BuiltinVariable, "call_function", builtin),
        replaced_attribute(TorchInGraphFunctionVariable, "call_function", call),
        replaced_attribute(SymNodeVariable, "call_method", method),
        replaced_attribute(SymNodeVariable, "create", classmethod(create)),
    ):
        yield made


def made_in(environment: Any, made: Mapping[Any, MadeOf]) -> dict[Any, MadeOf]:
    """Return those of numbers that belong to a trace: Dynamo may have begun anew before."""
    return {s: found for s, found in made.items() if found.value.node.shape_env is environment}


@contextlib.contextmanager
def without_guards_on(symbols: Set[Any], environment: Any) -> Iterator[None]:
    """Have Dynamo's own guards leave out what was assumed of numbers that Python makes.

    Dynamo does not know how to make them. The program checks them, as the other open numbers.
    """
    guards = [guard for guard in environment.guards if not guard.expr.free_symbols & symbols]
    with replaced_attribute(environment, "guards", guards) if symbols else contextlib.nullcontext():
        yield


def _with_known_bools(args: Any) -> Any:
    """Return what a function of tensors is given, with decisions by sizes made: True or False."""
    if not any(map(_is_open_bool, args)):
        return args
    if not any(isinstance(argument.realize(), TensorVariable) for argument in args):
        return args
    return [
        ConstantVariable.create(argument.evaluate_expr()) if _is_open_bool(argument) else argument
        for argument in args
    ]


def _is_open_bool(variable: Any) -> bool:
    return isinstance(variable, SymNodeVariable) and variable.python_type() is bool


def _sorted(numbers: Sequence[Any]) -> list[Any]:
    """Sort numbers by decisions about pairs of them; those that are equal stay in their order."""
    found: list[Any] = []
    for number in numbers:
        place = len(found)
        while place > 0 and number < found[place - 1]:
            place -= 1
        found.insert(place, number)
    return found


def _holds_open_number(variable: Any, *, itself: bool = False) -> bool:
    """Whether a list, a dict or the like has an open number somewhere, or is one `itself`."""
    waiting: list[Any] = [variable.realize()]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if isinstance(found, SymNodeVariable) and (itself or seen):
            return True
        found = getattr(found, "_base_vt", None) or found
        if id(found) in seen:
            continue  # it is in itself
        seen.add(id(found))
        if isinstance(found, ConstDictVariable):
            waiting += [item.realize() for item in found.items.values()]
        elif isinstance(found, BaseListVariable):
            waiting += [item.realize() for item in found.items]
    return False


def _are_sorted(args: Sequence[Any]) -> bool:
    """Whether the one argument is a list or tuple of numbers, some of them open."""
    found = args[0].realize() if len(args) == 1 else None
    return isinstance(found, BaseListVariable) and _are_open_numbers(found.items)


def _are_open_numbers(args: Sequence[Any]) -> bool:
    """Whether all variables are numbers, and some are open."""
    found = [argument.realize() for argument in args]
    if not any(isinstance(variable, SymNodeVariable) for variable in found):
        return False
    return all(
        isinstance(variable, (SymNodeVariable, ConstantVariable))
        and variable.python_type() in (bool, int, float)
        for variable in found
    )


def _is_made_by_python(node: Any) -> bool:
    if node.op not in ("call_function", "call_method") or node.kwargs:
        return False
    if node.target in PYTHON_FUNCTIONS or node.target in _OF_NUMPY:
        return True
    if node.target in _OF_INTS:
        return _is_made_of_ints(node)
    values = [_value(argument) for argument in node.args] if node.target in _OF_FLOATS else []
    return _are_numbers(values) and any(isinstance(v, torch.SymFloat) for v in values)


def _is_made_of_ints(node: Any) -> bool:
    """Whether a node is of ints, some of them open."""
    values = [_value(argument) for argument in node.args]
    if not all(type(value) is int or isinstance(value, torch.SymInt) for value in values):
        return False
    if node.target is operator.pow and not isinstance(values[-1], torch.SymInt):
        return False  # a product, which symbols have
    # Those that a loop carries have no value of the capture's call.
    found = [value for value in values if isinstance(value, torch.SymInt)]
    return bool(found) and all(value.node.has_hint() for value in found)


def _is_made_of_numbers(node: torch.fx.Node) -> bool:
    is_call = node.op in ("call_function", "call_method")
    return is_call and _are_numbers([_value(argument) for argument in node.args])


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(
        isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
        for value in values
    )


def _made_of(node: Any, value: Any, made: Mapping[Any, MadeOf]) -> MadeOf:
    def operand(argument: Any) -> Any:
        number = _value(argument)
        if not isinstance(argument, torch.fx.Node):
            return number
        known = made.get(number.node.expr) if hasattr(number, "node") else None
        if known is not None or not _is_made_of_numbers(argument):
            return known or number
        return _made_of(argument, number, made)

    return MadeOf(node.target, tuple(map(operand, node.args)), value)


def _value(argument: Any) -> Any:
    return argument.meta.get("example_value") if isinstance(argument, torch.fx.Node) else argument


def _new_number(environment: Any, node: Any, count: int) -> Any:
    """Return a new symbol for the result of a function, as it is in this call."""
    values = [_value(argument) for argument in node.args]
    known = [value.node.hint if hasattr(value, "node") else value for value in values]
    function = _OF_FLOATS.get(node.target, node.target)
    try:
        now = function(*known)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise refusal(f"{function.__name__} of a number raises {error}") from error
    if type(now) not in (int, float) or not math.isfinite(now):
        raise refusal(f"{function.__name__} of a number is {now}")
    return new_number(environment, now, f"number_{count}")


def new_number(environment: Any, now: float, name: str) -> Any:
    """Return a symbolic number that is none of those before; `now` is its value in this call."""
    source = ConstantSource(f"hostjit_{name}")
    symbol = environment.create_unspecified_symbol(now, source, DimDynamic.DYNAMIC)
    create = (
        environment.create_symfloatnode if type(now) is float else environment.create_symintnode
    )
    return create(symbol, hint=now, source=source)
