# SPDX-License-Identifier: Apache-2.0
"""What threads compute, value by value, and where elements lie."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager

from hostjit.kernels.cuda.c_text import (
    MEMORY_TYPES,
    REGISTER_TYPES,
    literal,
    narrowed,
    text_of,
    widened,
)
from hostjit.kernels.cuda.scope import Scope
from hostjit.kernels.cuda.space import ELEMENT, ROW, Access, Space
from hostjit.kernels.dtypes import DType
from hostjit.kernels.expression import (
    Apply,
    Bounded,
    Cast,
    Constant,
    Index,
    Load,
    PointwiseKernel,
    Reduce,
    ScalarArgument,
    SizeNumber,
    Store,
    operands_of,
)
from hostjit.kernels.sizes import Size, SymbolicSize

__all__ = ["ValueWriter", "pointer_of"]


def pointer_of(kernel: PointwiseKernel, access: Load | Store) -> str:
    """The parameter that an access begins from; a load may be of an output."""
    if isinstance(access, Store):
        return f"out{access.operand}"
    behind = access.operand - len(kernel.inputs)
    return f"in{access.operand}" if behind < 0 else f"out{behind}"


class ValueWriter:
    """Writes values into the scopes where they belong, each once.

    Row dimension `d` has the coordinate `k<d>`, element dimension `d` the coordinate `c<d>` of the
    first element of a vector, whose elements `e` counts. `V` and `I` are the width of vectors and
    the type of indices. Loads that are vectors are in arrays `r<value>` by then.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.kernel = space.kernel
        self.symbols = self.kernel.symbols()
        self.dtypes = self.kernel.value_dtypes()
        self.levels = space.levels()
        self.rounded = _rounded_quotients(self.kernel, self.levels, self.dtypes)
        self.rounded |= _rounded_powers(self.kernel, self.levels, self.dtypes, self.rounded)
        # Values of arrays of the thread, which are kept from pass to pass.
        self.kept: set[int] = set()

    def value(self, scope: Scope, number: int) -> str:
        """The name of a value, which is written if it is not known."""
        known = scope.find(number)
        if known is not None:
            return known
        target = scope.at_level(self.levels[number])
        type_ = REGISTER_TYPES[self.dtypes[number]]
        text = self._text(target, number)
        target.add(f"const {type_} v{number} = {text};")
        target.known[number] = f"v{number}"
        return f"v{number}"

    def needed(self, roots: Iterable[int]) -> list[int]:
        """What values are made of, themselves included, in order."""
        found: set[int] = set()
        pending = list(roots)
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                pending.extend(operands_of(self.kernel.values[number]))
        return sorted(found)

    def is_vector(self, load: Load) -> bool:
        """Whether a load is one of neighbours, or of what is far apart, for a whole vector."""
        if self.space.level(load) < ELEMENT:
            return False
        return all(self.levels[index] < ELEMENT for index, _ in load.terms)

    def declare_vectors(self, scope: Scope, number: int, count: str) -> None:
        """Make the array of a load that `is_vector`."""
        load = self.kernel.values[number]
        assert isinstance(load, Load)
        scope.add(f"Vector<{MEMORY_TYPES[load.dtype]}, V> r{number}[{count}];")

    def vector_loads(self, numbers: Iterable[int]) -> list[int]:
        """Those of the values that are loads of vectors."""
        values = self.kernel.values
        return [n for n in numbers if isinstance(v := values[n], Load) and self.is_vector(v)]

    def load_vector(self, scope: Scope, number: int) -> None:
        """Read the array element of a load that `is_vector`."""
        load = self.kernel.values[number]
        assert isinstance(load, Load)
        place = self.place(scope, load, pointer_of(self.kernel, load))
        step = self.space.strides_of(load)[-1]
        array = f"r{number}[{scope.place}]"
        if step == 1:
            scope.add(f"{array} = load_vector<V>({place});")
            return
        with self.each_element(scope) as element:
            element.add(f"{array}.element[e] = ({place})[e * {self.index(step)}];")

    def each_element(self, scope: Scope) -> AbstractContextManager[Scope]:
        """The loop over the elements of a vector."""
        scope.add("#pragma unroll")
        return scope.block("for (int e = 0; e < V; ++e)", ELEMENT)

    def begin_store(self, scope: Scope, store: Store, name: str) -> None:
        """Make the vector that the elements of a store are collected in."""
        if self.space.strides_of(store)[-1] == 1:
            type_ = "float" if _is_half(store.dtype) else MEMORY_TYPES[store.dtype]
            scope.add(f"Vector<{type_}, V> {name};")

    def store_element(self, scope: Scope, store: Store, name: str) -> None:
        """Collect an element of a store, or write it."""
        found = self.value(scope, store.value)
        if self.space.strides_of(store)[-1] == 1:
            scope.add(f"{name}.element[e] = {found};")
        else:
            place = self.place(scope, store, f"out{store.operand}")
            scope.add(f"*({place}) = {narrowed(found, store.dtype)};")

    def end_store(self, scope: Scope, store: Store, name: str) -> None:
        """Write what was collected."""
        if self.space.strides_of(store)[-1] == 1:
            place = self.place(scope, store, f"out{store.operand}")
            function = "store_rounded" if _is_half(store.dtype) else "store_vector"
            scope.add(f"{function}({place}, {name});")

    def store_row(self, scope: Scope, store: Store) -> None:
        """Write what there is once in a row."""
        stored = narrowed(self.value(scope, store.value), store.dtype)
        scope.add(f"*({self.place(scope, store, f'out{store.operand}')}) = {stored};")

    def place(self, scope: Scope, access: Access, pointer: str) -> str:
        """A pointer to the element of an access, or outside element loops to the vector's first."""
        terms = [pointer]
        if isinstance(access, Load):
            for index, stride in access.terms:
                terms.append(f"{self.value(scope, index)} * {self.index(stride)}")
        return " + ".join([*terms, *self._distances(scope, access)])

    def _distances(self, scope: Scope, access: Access) -> list[str]:
        strides = self.space.strides_of(access)
        kind = "static_cast<long long>" if isinstance(access, Index) else ""
        texts = [self.index(access.offset)] if access.offset != 0 else []
        for dim, stride in enumerate(strides):
            if stride == 0:
                continue
            name = f"{'k' if dim < self.space.num_kept else 'c'}{dim}"
            if dim == len(strides) - 1 and scope.level == ELEMENT:
                name = f"({name} + e)"
            text = f"{kind}({name})" if kind else name
            texts.append(text if stride == 1 else f"{text} * {self.index(stride)}")
        return texts

    def index(self, size: Size) -> str:
        """A size as a number of the type of indices."""
        if not isinstance(size, SymbolicSize):
            return str(size) if size >= 0 else f"({size})"
        return f"static_cast<I>{text_of(size, self.symbols)}"

    def coordinates(self, scope: Scope, linear: str, dims: range) -> None:
        """Define the coordinates of the dimensions `dims` from a linear index over them."""
        letter = "k" if dims.start < self.space.num_kept else "c"
        scope.add(f"I rest_of = {linear};") if len(dims) > 1 else None
        for dim in reversed(dims[1:]):
            size = f"static_cast<I>({text_of(self.space.sizes[dim], self.symbols)})"
            scope.add(f"const I {letter}{dim} = rest(rest_of, {size});")
            scope.add(f"rest_of = quotient(rest_of, {size});")
        if dims:
            last = "rest_of" if len(dims) > 1 else linear
            scope.add(f"const I {letter}{dims[0]} = {last};")

    def _text(self, scope: Scope, number: int) -> str:
        value = self.kernel.values[number]
        if number in self.kept and scope.level == ELEMENT:
            return f"x{number}[{scope.place}][e]"
        match value:
            case Load():
                if self.is_vector(value):
                    return widened(f"r{number}[{scope.place}].element[e]", value.dtype)
                place = self.place(scope, value, pointer_of(self.kernel, value))
                return widened(f"*({place})", value.dtype)
            case Index():
                return " + ".join(self._distances(scope, value)) or "0"
            case Constant():
                return literal(value.dtype, value.number)
            case ScalarArgument():
                return f"a_{value.name}"
            case SizeNumber():
                return text_of(value.size, self.symbols)
            case Cast():
                return self._cast(self.value(scope, value.operand), value.dtype)
            case Apply("exp") if number in self.rounded:
                return f"exp_to_round({self.value(scope, value.operands[0])})"
            case Apply() if number in self.rounded:
                dividend, divisor = value.operands
                return f"divided({self.value(scope, dividend)}, {self._divisor(scope, divisor)})"
            case Apply():
                operands = [self.value(scope, operand) for operand in value.operands]
                return f"op_{value.name}({', '.join(operands)})"
            case Bounded():
                found = self.value(scope, value.operand)
                size = f"static_cast<long long>({text_of(value.size, self.symbols)})"
                wraps = "true" if value.wraps else "false"
                names = f"{json.dumps(value.error)}, {json.dumps(self.kernel.name)}"
                return f"bounded({found}, {size}, {wraps}, {names})"
        raise AssertionError(f"a {type(value).__name__} is made by a pass")

    def _divisor(self, scope: Scope, number: int) -> str:
        target = scope.at_level(ROW)
        name = f"d{number}"
        if name not in target.names:
            target.add(f"const Divisor {name} = divisor_of({self.value(target, number)});")
            target.names.add(name)
        return name

    def _cast(self, operand: str, dtype: DType) -> str:
        converted = f"convert<{REGISTER_TYPES[dtype]}>({operand})"
        return converted if dtype is dtype.register else f"widen({narrowed(converted, dtype)})"


def _is_half(dtype: DType) -> bool:
    return dtype is not dtype.register


def _rounded_quotients(kernel: PointwiseKernel, levels: list[int], dtypes: list[DType]) -> set[int]:
    """Quotients by one number for a row of which all that is kept is rounded to a half type."""
    exact: set[int] = set()
    for value in kernel.values:
        if not isinstance(value, Cast) or value.dtype is value.dtype.register:
            exact.update(operands_of(value))
    exact.update(s.value for s in kernel.stores if s.dtype is s.dtype.register)
    return {
        number
        for number, value in enumerate(kernel.values)
        if isinstance(value, Apply) and value.name == "div" and dtypes[number] is DType.F32
        if number not in exact and levels[value.operands[1]] == ROW < levels[number]
    }


def _rounded_powers(
    kernel: PointwiseKernel, levels: list[int], dtypes: list[DType], quotients: set[int]
) -> set[int]:
    """Powers of a softmax of which all that is kept is rounded to a half type.

    They are of distances from a number for a row, and used in sums of the row and in quotients.
    """
    if not all(_is_half(store.dtype) for store in kernel.stores):
        return set()
    users: dict[int, list[int]] = {}
    for number, value in enumerate(kernel.values):
        for operand in operands_of(value):
            users.setdefault(operand, []).append(number)

    def is_distance(number: int) -> bool:
        value = kernel.values[number]
        return (
            isinstance(value, Apply)
            and value.name == "sub"
            and isinstance(kernel.values[value.operands[1]], Reduce)
            and levels[value.operands[1]] == ROW < levels[number]
        )

    def is_rounded(number: int) -> bool:
        value = kernel.values[number]
        is_sum = isinstance(value, Reduce) and value.name == "sum"
        is_half = isinstance(value, Cast) and _is_half(value.dtype)
        return is_sum or is_half or number in quotients

    return {
        number
        for number, value in enumerate(kernel.values)
        if isinstance(value, Apply) and value.name == "exp" and dtypes[number] is DType.F32
        if is_distance(value.operands[0]) and all(map(is_rounded, users.get(number, [])))
    }
