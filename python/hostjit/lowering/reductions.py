# SPDX-License-Identifier: Apache-2.0
"""From one ATen node that reduces rows of its operand to instructions of a kernel.

The rules are in `reduction_rules`, `normalisation_rules` and `activation_rules`; this file holds
what they are written with. A rule sees the element at one point of the operand, as a pointwise rule
does, and may combine values over the row that the point is in.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.fx import Node

from hostjit.kernels import DType, KernelBuilder
from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.iteration_space import Steps, row_major
from hostjit.lowering.pointwise import (
    DTYPES,
    NotFusableError,
    Operand,
    OperandReader,
    PointwiseContext,
    check_devices,
    check_tensor,
    dtype_of,
    named_arguments,
)
from hostjit.lowering.registry import Registry
from hostjit.lowering.selection import Selection, index_strides
from hostjit.lowering.sizes import shape_of

__all__ = [
    "ReductionContext",
    "ReductionRule",
    "Rows",
    "emit_reduction",
    "is_reducible",
    "over_dims",
    "points_shape",
    "reduced_operand",
    "reduces",
    "rows_of",
    "rule_of",
]


@dataclass(frozen=True)
class Rows:
    """How the points of a reduced operand form rows.

    Points are numbered in row-major order of `shape`; dimensions that are `kept` tell rows apart.
    """

    shape: tuple[Size, ...]
    kept: tuple[bool, ...]

    @property
    def count(self) -> Size:
        """The number of elements of a row."""
        return math.prod(n for n, kept in zip(self.shape, self.kept, strict=True) if not kept)

    @property
    def row_strides(self) -> Steps:
        """The step that each dimension makes from row to row, in row-major order."""
        return self._strides(True)

    @property
    def element_strides(self) -> Steps:
        """The step that each dimension makes within a row, in row-major order."""
        return self._strides(False)

    def _strides(self, kept: bool) -> Steps:
        sizes = [n if mine is kept else 1 for n, mine in zip(self.shape, self.kept, strict=True)]
        steps = row_major(sizes)
        return tuple(s if mine is kept else 0 for s, mine in zip(steps, self.kept, strict=True))


Emit = Callable[["ReductionContext"], "int | tuple[int, ...]"]
# Of a node, an operand and its strides, those along the dimensions of the node's points.
PlaceOperand = Callable[[Node, Node, Sequence[Size]], Steps]


@dataclass(frozen=True)
class ReductionRule:
    """One rule: the rows of a node, its instructions, and what its results are.

    `results` has "row" or "element" for each result; a node with several gives a tuple.
    `rows` is None where nothing is reduced. `channelwise` says that the other operands have one
    element per channel, which is dimension 1. `strides` places operands in the dimensions of the
    rows, where those are not the dimensions of the first operand.
    """

    rows: Callable[[Node], Rows] | None
    emit: Emit
    results: tuple[str, ...]
    channelwise: bool
    strides: PlaceOperand | None


_rules: Registry[Any] = Registry("reduction rule")


def reduces(
    *overloads: str,
    rows: Callable[[Node], Rows] | None,
    results: tuple[str, ...] = ("row",),
    channelwise: bool = False,
    strides: PlaceOperand | None = None,
) -> Callable[[Emit], Emit]:
    """Register the decorated rule for operator overloads.

    Example:
        @reduces("aten.amax.default", rows=over_dims)
        def largest(context): ...
    """

    def register(emit: Emit) -> Emit:
        _rules(*overloads)(ReductionRule(rows, emit, results, channelwise, strides))
        return emit

    return register


def rule_of(node: Node) -> ReductionRule | None:
    """The rule of a node that reduces or normalises; None for others."""
    rule = _rules.find(node.target)
    assert rule is None or isinstance(rule, ReductionRule)
    return rule


def rows_of(node: Node) -> Rows | None:
    """The rows of a node with a rule; None if it reduces nothing."""
    rule = rule_of(node)
    assert rule is not None
    return rule.rows(node) if rule.rows else None


def reduced_operand(node: Node) -> Node:
    """The operand whose points the rule visits: the first one."""
    operand = node.args[0]
    assert isinstance(operand, Node)
    return operand


def over_dims(node: Node) -> Rows:
    """Rows along the argument `dim`, or of all elements."""
    shape = points_shape(node)
    dims = named_arguments(node).get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    rank = max(len(shape), 1)
    reduced = {dim % rank for dim in dims} if dims else set(range(rank))
    return Rows(shape, tuple(dim not in reduced for dim in range(len(shape))))


def broadcast(node: Node, operand: Node, strides: Sequence[Size]) -> Steps:
    """Strides of an operand along the dimensions of the points that its user visits."""
    picked = index_strides(node, operand, strides)
    if picked is not None:
        return picked
    rule = rule_of(node)
    if rule and rule.strides:
        return rule.strides(node, operand, strides)
    shape = shape_of(operand.meta["val"])
    rank = len(points_shape(node))
    own = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    if rule and rule.channelwise and operand is not reduced_operand(node):
        return tuple(own[0] if dim == 1 else 0 for dim in range(rank))
    return tuple([0] * (rank - len(own)) + own)


def points_shape(node: Node) -> tuple[Size, ...]:
    """The shape that a node's rule visits the points of."""
    rule = rule_of(node)
    if rule and rule.strides and rule.rows:
        return rule.rows(node).shape
    visited = reduced_operand(node) if rule else node
    return shape_of(visited.meta["val"])


class RowReader(OperandReader, Protocol):
    """Gives rules, beside elements, the place of the current point."""

    def index(self, shape: tuple[Size, ...], strides: Steps) -> int:
        """`sum(strides[d] * coordinate[d])` over the dimensions of `shape`, as a kernel value."""


class ReductionContext(PointwiseContext):
    """What a rule sees of one node."""

    reader: RowReader

    def __init__(
        self, node: Node, rows: Rows | None, builder: KernelBuilder, reader: RowReader
    ) -> None:
        super().__init__(node, builder, reader)
        self.rows = rows

    @property
    def count(self) -> Size:
        """The number of elements of a row."""
        assert self.rows is not None
        return self.rows.count

    def reduce(self, name: str, value: int) -> int:
        """Combine a value over the row, by a reduction of the kernels' table."""
        return self.builder.reduce(name, value)

    def position_in_row(self) -> int:
        """The position of the current element in its row, counted in row-major order."""
        assert self.rows is not None
        return self.reader.index(self.rows.shape, self.rows.element_strides)

    def mean(self, value: int) -> int:
        return self.apply("div", self.reduce("sum", value), self.constant_like(value, self.count))

    def first_operand(self, dtype: DType | None = None) -> int:
        """The reduced operand in the register type of `dtype`, rounded to `dtype` if it differs."""
        operand = reduced_operand(self.node)
        value = self.reader.read(operand)
        target = dtype or dtype_of(operand)
        return value if target is dtype_of(operand) else self.builder.cast(value, target)

    def result_dtypes(self) -> list[DType]:
        value = self.node.meta["val"]
        results = value if isinstance(value, tuple | list) else [value]
        return [DTYPES[result.dtype] for result in results]

    def optional(self, name: str) -> Operand | None:
        """A tensor or number argument that may be None."""
        return None if self.arguments.get(name) is None else self.operand(name)


def emit_reduction(node: Node, builder: KernelBuilder, reader: RowReader) -> tuple[int, ...]:
    """Add the instructions of `node` to a kernel; returns the value of each result.

    Raises NotFusableError if the node's arguments are outside what its rule covers.
    """
    rule = rule_of(node)
    assert rule is not None
    context = ReductionContext(node, rows_of(node), builder, reader)
    try:
        emitted = rule.emit(context)
    except ValueError as error:
        # The kernel's operation is not defined for this type; neither is eager's.
        raise NotFusableError(str(error)) from error
    values = emitted if isinstance(emitted, tuple) else (emitted,)
    dtypes = context.result_dtypes()
    return tuple(builder.cast(v, d) for v, d in zip(values, dtypes, strict=False))


class _Probe:
    """Reads operands into a kernel that is thrown away."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder = builder

    def read(self, node: Node) -> int:
        check_tensor(node)
        return self.builder.load(self.builder.input(dtype_of(node)), ())

    def position(self, node: Node) -> int:
        raise AssertionError("a reduction makes nothing of nothing")

    def select(self, selection: Selection, places: Sequence[tuple[int, int]]) -> int:
        raise AssertionError("a reduction meets its operands in place")

    def index(self, shape: tuple[Size, ...], strides: Steps) -> int:
        return self.builder.index(())


def is_reducible(node: Node) -> bool:
    """Whether a node with a rule can be part of a kernel.

    What may be empty is left to ATen: it knows which reductions have an identity.
    """
    rule = rule_of(node)
    if rule is None or not node.args or not isinstance(node.args[0], Node):
        return False
    builder = KernelBuilder("probe", ())
    try:
        check_tensor(reduced_operand(node))
        check_devices(node)
        if not at_most(1, math.prod(points_shape(node))):
            return False
        emit_reduction(node, builder, _Probe(builder))
    except NotFusableError:
        return False
    return _takes_one_by_one(node, rule)


def _takes_one_by_one(node: Node, rule: ReductionRule) -> bool:
    """Whether only those results are used that the rule gives, each by its position."""
    if isinstance(node.meta["val"], torch.Tensor):
        return True
    return all(
        user.target is operator.getitem
        and isinstance(user.args[1], int)
        and 0 <= user.args[1] < len(rule.results)
        for user in node.users
    )
