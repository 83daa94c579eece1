# SPDX-License-Identifier: Apache-2.0
"""The input of the kernel generator: a typed expression graph over one iteration space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hostjit.kernels import operations as _fill_table  # noqa: F401
from hostjit.kernels.dtypes import DType
from hostjit.kernels.operation import Number, result_dtype
from hostjit.kernels.reduction import reduced_dtype
from hostjit.kernels.sizes import Size, Symbol, at_most, symbols_in

__all__ = [
    "Apply",
    "Bounded",
    "Cast",
    "Constant",
    "Expression",
    "Index",
    "Load",
    "Operand",
    "PointwiseKernel",
    "Reduce",
    "ScalarArgument",
    "SizeNumber",
    "Store",
    "operands_of",
]


@dataclass(frozen=True)
class Operand:
    """A buffer argument. `may_alias` says that an output may share memory with an input."""

    dtype: DType
    may_alias: bool = False


@dataclass(frozen=True)
class Load:
    """The element of input `operand` at `offset + sum(strides[d] * coordinate[d])`.

    `terms` are pairs of an earlier value, which is `Bounded`, and a stride to add it by.
    """

    operand: int
    dtype: DType
    strides: tuple[Size, ...]
    offset: Size = 0
    terms: tuple[tuple[int, Size], ...] = ()


@dataclass(frozen=True)
class Constant:
    """A number of type `dtype`."""

    dtype: DType
    number: Number


@dataclass(frozen=True)
class ScalarArgument:
    """A number known only at the call, `i64` or `f64`, by its name: an identifier."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class SizeNumber:
    """A size as an `i64` number: what a mean is divided by."""

    size: Size


@dataclass(frozen=True)
class Index:
    """The `i64` number `offset + sum(strides[d] * coordinate[d])`: arange, masks."""

    strides: tuple[Size, ...]
    offset: Size = 0


@dataclass(frozen=True)
class Cast:
    """Value `operand` converted to `dtype`; rounds to it also where registers are wider."""

    operand: int
    dtype: DType


@dataclass(frozen=True)
class Apply:
    """Operation `name` of the table applied to earlier values."""

    name: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Bounded:
    """The `i64` value `operand` as a place among `size`, from the end if negative and `wraps`.

    Where it is none, the kernel fails with `error`: the class and the text of the exception, which
    has `{}` in the place of the value. What has no error was found to be a place before.
    """

    operand: int
    size: Size
    wraps: bool
    error: str


@dataclass(frozen=True)
class Reduce:
    """Value `operand` at all points of a row, combined by the reduction `name` of the table."""

    name: str
    operand: int


Expression = Load | Constant | ScalarArgument | SizeNumber | Index | Cast | Apply | Bounded | Reduce


def operands_of(value: Expression) -> tuple[int, ...]:
    """The earlier values that a value is made of."""
    match value:
        case Apply():
            return value.operands
        case Cast() | Bounded() | Reduce():
            return (value.operand,)
        case Load():
            return tuple(index for index, _ in value.terms)
    return ()


@dataclass(frozen=True)
class Store:
    """Write `value` to output `operand` at `offset + sum(strides[d] * coordinate[d])`.

    `terms` are pairs of an earlier `i64` value, which is 0 or more, and a stride to add it by.
    Points of which `condition`, an earlier `bool`, is false are not written. With an operation as
    `combine`, it is applied to what is there and `value`, point after point.
    """

    operand: int
    dtype: DType
    value: int
    strides: tuple[Size, ...]
    offset: Size = 0
    terms: tuple[tuple[int, Size], ...] = ()
    condition: int | None = None
    combine: str = ""

    @property
    def replaces_all(self) -> bool:
        """Whether each point is written, whatever is there."""
        return self.condition is None and not self.combine


@dataclass(frozen=True)
class PointwiseKernel:
    """One fused kernel over `shape`, whose last `num_reduced` dimensions are reduced.

    `values` are in SSA order; operands refer to positions in it. A point of the kept dimensions
    is a row. A value is per row if it is a `Reduce` or made of nothing that varies within a row;
    other values are per element. A store that does not move within a row takes a value per row.

    Without reduced dimensions all values of a point are computed before its first store, so an
    output may be the same buffer as an input that is read at the same place (`may_alias`). With
    them a row may be read again after it is written. Constructing an invalid kernel raises
    ValueError.

    Sizes, strides and offsets may be symbolic. Loops over what may be empty are skipped then; a
    reduced dimension is never empty.

    A load may be of an output, which counts behind the inputs: of what the same point writes later.
    """

    name: str
    shape: tuple[Size, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    values: tuple[Expression, ...]
    stores: tuple[Store, ...]
    num_reduced: int = 0

    def __post_init__(self) -> None:
        dtypes = self.value_dtypes()
        varies = self.varies_in_row()
        for value in self.values:
            if isinstance(value, Load):
                self._check_access("load", value, self.inputs + self.outputs)
                self._check_terms(value)
            elif isinstance(value, Index):
                self._check_rank("index", value.strides)
        for store in self.stores:
            self._check_access("store", store, self.outputs)
            found = dtypes[store.value]
            if found is not store.dtype.register:
                raise ValueError(
                    f"kernel '{self.name}': store to output {store.operand} has a value of type "
                    f"{found.value}, expected {store.dtype.register.value}"
                )
            if any(dtypes[index] is not DType.I64 for index, _ in store.terms) or (
                store.terms and self.has_rows
            ):
                raise ValueError(
                    f"kernel '{self.name}': store to output {store.operand} has terms, expected "
                    "i64 values in a kernel without rows"
                )
            if not store.replaces_all and (self.has_rows or len(self.stores) > 1):
                raise ValueError(
                    f"kernel '{self.name}': store to output {store.operand} has a condition or "
                    "combines, expected no rows and no other store"
                )
            if store.condition is not None and dtypes[store.condition] is not DType.BOOL:
                raise ValueError(
                    f"kernel '{self.name}': condition of the store to output {store.operand} is "
                    f"{dtypes[store.condition].value}, expected bool"
                )
            if varies[store.value] and not self.moves_in_row(store.strides):
                raise ValueError(
                    f"kernel '{self.name}': store to output {store.operand} is per row, "
                    "but its value varies within a row"
                )

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to reduce, be it along dimensions of size 1 only."""
        return self.num_reduced > 0 or any(isinstance(value, Reduce) for value in self.values)

    def moves_in_row(self, strides: tuple[Size, ...]) -> bool:
        """Whether an access with these strides reaches several places within a row."""
        kept = len(self.shape) - self.num_reduced
        row = zip(strides[kept:], self.shape[kept:], strict=True)
        return any(stride != 0 and size != 1 for stride, size in row)

    def varies_in_row(self) -> list[bool]:
        """For each value, whether it is per element rather than per row."""
        varies: list[bool] = []
        for value in self.values:
            moves = isinstance(value, Load | Index) and self.moves_in_row(value.strides)
            follows = not isinstance(value, Reduce)
            varies.append(moves or (follows and any(varies[n] for n in operands_of(value))))
        return varies

    def _check_rank(self, what: str, strides: tuple[Size, ...]) -> None:
        if len(strides) != len(self.shape):
            raise ValueError(
                f"kernel '{self.name}': {what} has {len(strides)} strides, "
                f"expected {len(self.shape)}"
            )

    def _check_access(self, what: str, access: Load | Store, operands: tuple[Operand, ...]) -> None:
        self._check_rank(what, access.strides)
        if not 0 <= access.operand < len(operands):
            raise ValueError(
                f"kernel '{self.name}': {what} of operand {access.operand}, "
                f"there are {len(operands)}"
            )
        expected = operands[access.operand].dtype
        if access.dtype is not expected:
            raise ValueError(
                f"kernel '{self.name}': {what} of operand {access.operand} as "
                f"{access.dtype.value}, expected {expected.value}"
            )
        steps = zip(self.shape, access.strides, strict=True)
        backward = ((size - 1) * step for size, step in steps if size != 0 and at_most(step, 0))
        if at_most(sum(backward, access.offset), -1):
            raise ValueError(
                f"kernel '{self.name}': {what} of operand {access.operand} reaches elements before "
                "the first"
            )

    def _check_terms(self, load: Load) -> None:
        for index, stride in load.terms:
            if not isinstance(self.values[index], Bounded) or not at_most(0, stride):
                raise ValueError(
                    f"kernel '{self.name}': load of operand {load.operand} adds value {index} by "
                    f"{stride}, expected a bounded value and a stride of 0 or more"
                )

    def with_one_buffer(self, shared: Mapping[int, int]) -> PointwiseKernel:
        """The kernel where inputs are outputs, each of which starts at what is read there first.

        `shared` has the outputs by the inputs. They are its first outputs, in order.
        """
        first = sorted(set(shared.values()))
        order = [*first, *(n for n in range(len(self.outputs)) if n not in first)]
        kept = [n for n in range(len(self.inputs)) if n not in shared]
        operands = {old: new for new, old in enumerate(kept)}
        operands |= {old: len(kept) + order.index(new) for old, new in shared.items()}

        def moved(value: Expression) -> Expression:
            if not isinstance(value, Load):
                return value
            offset = 0 if value.operand in shared else value.offset
            return replace(value, operand=operands[value.operand], offset=offset)

        return replace(
            self,
            inputs=tuple(self.inputs[n] for n in kept),
            outputs=tuple(self.outputs[n] for n in order),
            values=tuple(map(moved, self.values)),
            stores=tuple(
                replace(store, operand=order.index(store.operand)) for store in self.stores
            ),
        )

    def with_pairs(self, pairs: Mapping[int, int]) -> PointwiseKernel:
        """The kernel where outputs are in one buffer with others, element behind element.

        `pairs` has the second ones by the first ones, whose buffers they are in.
        """
        seconds = {second: first for first, second in pairs.items()}
        kept = [n for n in range(len(self.outputs)) if n not in seconds]

        def moved(store: Store) -> Store:
            if store.operand not in pairs and store.operand not in seconds:
                return replace(store, operand=kept.index(store.operand))
            return replace(
                store,
                operand=kept.index(seconds.get(store.operand, store.operand)),
                strides=tuple(2 * stride for stride in store.strides),
                offset=2 * store.offset + (store.operand in seconds),
            )

        outputs, stores = tuple(self.outputs[n] for n in kept), tuple(map(moved, self.stores))
        return replace(self, outputs=outputs, stores=stores)

    def errors(self) -> list[str]:
        """What the kernel may fail with, each once."""
        found = (value.error for value in self.values if isinstance(value, Bounded))
        return list(dict.fromkeys(filter(None, found)))

    def value_dtypes(self) -> list[DType]:
        """The register type of each value."""
        dtypes: list[DType] = []
        for position, value in enumerate(self.values):
            operands = operands_of(value)
            if any(not 0 <= operand < position for operand in operands):
                raise ValueError(
                    f"kernel '{self.name}': value {position} uses a value not yet defined"
                )
            if isinstance(value, Bounded) and dtypes[value.operand] is not DType.I64:
                found = dtypes[value.operand].value
                raise ValueError(f"kernel '{self.name}': index {position} is {found}, expected i64")
            if isinstance(value, Apply):
                dtypes.append(result_dtype(value.name, tuple(dtypes[i] for i in operands)))
            elif isinstance(value, Reduce):
                dtypes.append(reduced_dtype(value.name, dtypes[value.operand]))
            elif isinstance(value, Index | Bounded | SizeNumber):
                dtypes.append(DType.I64)
            else:
                dtypes.append(value.dtype.register)
        return dtypes

    def scalars(self) -> list[ScalarArgument]:
        """The scalar arguments, in order."""
        found = [value for value in self.values if isinstance(value, ScalarArgument)]
        return list(dict.fromkeys(found))

    def symbols(self) -> list[Symbol]:
        """The symbols of its sizes: further scalar arguments, `i64`, in this order."""
        return symbols_in(self._sizes())

    def _sizes(self) -> Iterator[Size]:
        yield from self.shape
        for value in (*self.values, *self.stores):
            match value:
                case Load() | Store():
                    yield from (*value.strides, value.offset, *(step for _, step in value.terms))
                case Index():
                    yield from (*value.strides, value.offset)
                case Bounded() | SizeNumber():
                    yield value.size
