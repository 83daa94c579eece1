# SPDX-License-Identifier: Apache-2.0
"""The table of scalar operations, and the typed values that they are written in.

An operation is one registered function from values to a value. Primitive ones call the LLVM
builder; the others are ordinary formulas over values, so that adding an operation touches one
place: its definition in `operations/`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.dtypes import DType
from hostjit.kernels.vector_math import VECTOR_MATH

__all__ = [
    "FORMS",
    "OPERATIONS",
    "Emitter",
    "Operation",
    "Value",
    "apply",
    "form",
    "operation",
    "result_dtype",
]

Number = int | float | bool


class Emitter:
    """Where the instructions of a kernel go: the module and the builder at its current place."""

    def __init__(self, module: Any, builder: Any) -> None:
        self.module = module
        self.builder = builder

    def constant(self, dtype: DType, number: Number) -> Value:
        """A constant, wrapped or rounded to `dtype` as C would."""
        type_ = dtype.register_type()
        if dtype.register is DType.F32:
            return Value(self, DType.F32, ir.Constant(type_, ctypes.c_float(number).value))
        if dtype is DType.F64:
            return Value(self, dtype, ir.Constant(type_, float(number)))
        if dtype is DType.BOOL:
            return Value(self, dtype, ir.Constant(type_, int(bool(number))))
        bits = int(number) & ((1 << dtype.bits) - 1)
        if dtype.is_signed and bits >> (dtype.bits - 1):
            bits -= 1 << dtype.bits
        return Value(self, dtype, ir.Constant(type_, bits))

    def call(
        self, symbol: str, result: Any, arguments: list[Any], flags: tuple[str, ...] = ()
    ) -> Any:
        """Call an external function or an intrinsic, declaring it on first use."""
        function = self.module.globals.get(symbol)
        if function is None:
            signature = ir.FunctionType(result, [argument.type for argument in arguments])
            function = ir.Function(self.module, signature, symbol)
        return self.builder.call(function, arguments, fastmath=flags)


@dataclass(frozen=True)
class Value:
    """A scalar in a register. The operators are those of the operation table."""

    emitter: Emitter
    dtype: DType
    register: Any

    def of(self, number: Number) -> Value:
        """A constant of this value's type."""
        return self.emitter.constant(self.dtype, number)

    def like(self, other: Value | Number) -> Value:
        return other if isinstance(other, Value) else self.of(other)

    def intrinsic(self, name: str, *others: Value, flags: tuple[str, ...] = ()) -> Value:
        """Apply the LLVM intrinsic `llvm.<name>` of this value's type."""
        type_ = self.register.type
        suffix = {DType.F32: "f32", DType.F64: "f64"}.get(self.dtype, f"i{self.dtype.bits}")
        arguments = [value.register for value in (self, *others)]
        result = self.emitter.call(f"llvm.{name}.{suffix}", type_, arguments, flags)
        return Value(self.emitter, self.dtype, result)

    def math(self, name: str, *others: Value) -> Value:
        """Compute the function `name` of the vector-math list: its arithmetic form, or a call."""
        if name in FORMS[self.dtype]:
            return FORMS[self.dtype][name](self, *others)
        symbol = VECTOR_MATH[name].symbol(self.dtype.value)
        arguments = [value.register for value in (self, *others)]
        result = self.emitter.call(symbol, self.register.type, arguments)
        return Value(self.emitter, self.dtype, result)

    def __add__(self, other: Value | Number) -> Value:
        return apply("add", self, self.like(other))

    def __radd__(self, other: Number) -> Value:
        return apply("add", self.of(other), self)

    def __sub__(self, other: Value | Number) -> Value:
        return apply("sub", self, self.like(other))

    def __rsub__(self, other: Number) -> Value:
        return apply("sub", self.of(other), self)

    def __mul__(self, other: Value | Number) -> Value:
        return apply("mul", self, self.like(other))

    def __rmul__(self, other: Number) -> Value:
        return apply("mul", self.of(other), self)

    def __truediv__(self, other: Value | Number) -> Value:
        return apply("div", self, self.like(other))

    def __rtruediv__(self, other: Number) -> Value:
        return apply("div", self.of(other), self)

    def __neg__(self) -> Value:
        return apply("neg", self)

    def __lt__(self, other: Value | Number) -> Value:
        return apply("lt", self, self.like(other))

    def __le__(self, other: Value | Number) -> Value:
        return apply("le", self, self.like(other))

    def __gt__(self, other: Value | Number) -> Value:
        return apply("gt", self, self.like(other))

    def __ge__(self, other: Value | Number) -> Value:
        return apply("ge", self, self.like(other))

    def equals(self, other: Value | Number) -> Value:
        return apply("eq", self, self.like(other))

    def differs(self, other: Value | Number) -> Value:
        return apply("ne", self, self.like(other))

    def __and__(self, other: Value) -> Value:
        return apply("bitwise_and", self, other)

    def __or__(self, other: Value) -> Value:
        return apply("bitwise_or", self, other)

    def __xor__(self, other: Value) -> Value:
        return apply("bitwise_xor", self, other)

    def __invert__(self) -> Value:
        return apply("bitwise_not", self)

    def isnan(self) -> Value:
        return apply("isnan", self)

    def where(self, yes: Value | Number, no: Value | Number, like: Value | None = None) -> Value:
        """`yes` where this is true, else `no`; numbers take the type of the other or `like`."""
        model = like or (yes if isinstance(yes, Value) else no)
        assert isinstance(model, Value), "where: one branch or `like` must be a value"
        return apply("where", self, model.like(yes), model.like(no))


@dataclass(frozen=True)
class Operation:
    """One entry of the table.

    `signature` names operand and result types: `T` the element type, `B` bool; "TT>B" compares.
    `dtypes` are the types that `T` may be.
    """

    name: str
    signature: str
    dtypes: tuple[DType, ...]
    emit: Callable[..., Value]

    @property
    def arity(self) -> int:
        return self.signature.index(">")


OPERATIONS: dict[str, Operation] = {}

# By type, functions of the vector-math list that are computed by arithmetic instead of a call.
FORMS: dict[DType, dict[str, Callable[..., Value]]] = {DType.F32: {}, DType.F64: {}}


def form(
    *dtypes: DType, name: str | None = None
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Make the decorated function the form for these types of the vector-math function of its name.

    A trailing underscore does not count.
    """

    def register(emit: Callable[..., Value]) -> Callable[..., Value]:
        key = name or emit.__name__.rstrip("_")
        assert key in VECTOR_MATH, key
        for dtype in dtypes:
            FORMS[dtype][key] = emit
        return emit

    return register


def operation(
    signature: str, dtypes: tuple[DType, ...], *, name: str | None = None
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the decorated function under its name, less a trailing underscore."""

    def register(emit: Callable[..., Value]) -> Callable[..., Value]:
        key = name or emit.__name__.rstrip("_")
        assert key not in OPERATIONS, f"operation '{key}' is defined twice"
        OPERATIONS[key] = Operation(key, signature, dtypes, emit)
        return emit

    return register


def result_dtype(name: str, operands: tuple[DType, ...]) -> DType:
    """Check operand types against the table and return the result's type.

    Raises ValueError that names the operation, the operand, what was expected and what was found.
    """
    entry = OPERATIONS.get(name)
    if entry is None:
        raise ValueError(f"unknown operation '{name}'")
    if len(operands) != entry.arity:
        raise ValueError(f"{name}: {len(operands)} operands, expected {entry.arity}")
    element: DType | None = None
    for position, (letter, dtype) in enumerate(zip(entry.signature, operands, strict=False)):
        if letter == "B":
            if dtype is not DType.BOOL:
                raise ValueError(f"{name}: operand {position} is {dtype.value}, expected bool")
            continue
        if dtype not in entry.dtypes:
            expected = ", ".join(allowed.value for allowed in entry.dtypes)
            message = f"{name}: operand {position} is {dtype.value}, expected one of {expected}"
            raise ValueError(message)
        if element is not None and dtype is not element:
            message = f"{name}: operand {position} is {dtype.value}, expected {element.value}"
            raise ValueError(message)
        element = dtype
    if entry.signature.endswith("B"):
        return DType.BOOL
    assert element is not None, name
    return element


def apply(name: str, *operands: Value) -> Value:
    """Emit operation `name` on `operands`."""
    result_dtype(name, tuple(value.dtype for value in operands))
    return OPERATIONS[name].emit(*operands)
