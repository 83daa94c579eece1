# SPDX-License-Identifier: Apache-2.0
"""The kernel of a group: its members' instructions over the group's iteration space."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set

from torch.fx import Node

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel
from hostjit.kernels.sizes import Size
from hostjit.lowering.devices import numbers_of_the_host
from hostjit.lowering.iteration_space import IterationSpace, Radix, Steps
from hostjit.lowering.members import points, selects
from hostjit.lowering.pointwise import dtype_of, emit
from hostjit.lowering.reductions import broadcast, emit_reduction, points_shape, rule_of
from hostjit.lowering.selection import Selection, along
from hostjit.lowering.sizes import shape_of, strides_of
from hostjit.lowering.views import Views

__all__ = ["build_kernel", "number_argument"]


def build_kernel(
    name: str,
    members: Sequence[Node],
    outputs: Sequence[Node],
    space: IterationSpace,
    views: Views,
    creators: Set[Node],
    reduced: Set[int] = frozenset(),
) -> tuple[PointwiseKernel, tuple[Node, ...], tuple[Node, ...]]:
    """Write a group as a kernel.

    Arguments: the kernel's name; the members in the graph's order and those among them to store;
    the space in which all of them are aligned; the graph's views, the nodes that are repeated
    where they are used, and the dimensions of the space that are reduced.
    Returns: the kernel, the nodes whose buffers it reads, in operand order, and those of which it
    takes the numbers, as `number_argument` calls them.
    """
    return _GroupKernel(name, members, space, views, creators, reduced).build(outputs)


def number_argument(place: int) -> str:
    """The name of the scalar argument that brings one of the numbers of a kernel of a group."""
    return f"host{place}"


class _GroupKernel:
    def __init__(
        self,
        name: str,
        members: Sequence[Node],
        space: IterationSpace,
        views: Views,
        creators: Set[Node],
        reduced: Set[int],
    ) -> None:
        self.members = members
        self.space = space
        self.views = views
        self.creators = creators
        kept = [dim for dim in range(len(space.sizes)) if dim not in reduced]
        self.order = [*kept, *sorted(reduced)]
        self.builder = KernelBuilder(name, self.ordered(space.sizes), len(reduced))
        self.values: dict[Node, int] = {}
        self.results: dict[Node, tuple[int, ...]] = {}
        self.inputs: dict[Node, int] = {}
        self.numbers: dict[Node, str] = {}

    def build(
        self, outputs: Sequence[Node]
    ) -> tuple[PointwiseKernel, tuple[Node, ...], tuple[Node, ...]]:
        for member in self.members:
            self._emit(member)
        for node in outputs:
            tensor = node.meta["val"]
            strides = self.strides(node, shape_of(tensor), strides_of(tensor))
            operand = self.builder.output(dtype_of(node))
            self.builder.store(operand, self.values[node], strides)
        return self.builder.build(), tuple(self.inputs), tuple(self.numbers)

    def _emit(self, member: Node) -> None:
        source = selects(member)
        if source is not None:
            index = member.args[1]
            assert isinstance(index, int)
            self.values[member] = self.results[source][index]
        elif rule_of(member):
            self.results[member] = emit_reduction(member, self.builder, _Reader(self, member))
            self.values[member] = self.results[member][0]
        else:
            self.values[member] = emit(member, self.builder, _Reader(self, member))

    def ordered(self, numbers: Sequence[Size]) -> Steps:
        """Numbers along the space's dimensions, along those of the kernel."""
        return tuple(numbers[dim] for dim in self.order)

    def strides(self, member: Hashable, shape: Sequence[Size], strides: Sequence[Size]) -> Steps:
        """Strides along the dimensions of a member's shape, along those of the kernel."""
        radix = Radix.of_shape(shape)
        result = radix.translate(self.space.steps[member], self.space.sizes, strides)
        assert result is not None, f"{member} is not aligned with its group"
        return self.ordered(result)

    def input(self, root: Node) -> int:
        if root not in self.inputs:
            self.inputs[root] = self.builder.input(dtype_of(root))
        return self.inputs[root]

    def number(self, node: Node) -> int:
        """The number of a tensor without dims on the CPU, which the launch brings."""
        name = self.numbers.setdefault(node, number_argument(len(self.numbers)))
        dtype = dtype_of(node)
        argument = self.builder.scalar_argument(name, DType.F64 if dtype.is_float else DType.I64)
        return self.builder.cast(argument, dtype.register)


class _Reader:
    """Reads operands at the current point of one member."""

    def __init__(self, kernel: _GroupKernel, member: Node) -> None:
        self.kernel = kernel
        self.member = member

    def read(self, node: Node) -> int:
        kernel = self.kernel
        access = kernel.views.access(node)
        if access.root in kernel.values:
            return kernel.values[access.root]
        if access.root in kernel.creators:
            return emit(access.root, kernel.builder, _CreationReader(self, node))
        if node in numbers_of_the_host(self.member):
            return kernel.number(node)
        strides = self.strides(node, access.strides)
        return kernel.builder.load(kernel.input(access.root), strides, access.offset)

    def strides(self, operand: Node, strides: Sequence[Size]) -> Steps:
        """Strides of an operand of the member, along the kernel's dimensions."""
        shape = points_shape(self.member)
        along = broadcast(self.member, operand, strides)
        return self.kernel.strides(points(self.member), shape, along)

    def select(self, selection: Selection, places: Sequence[tuple[int, int]]) -> int:
        kernel = self.kernel
        access = kernel.views.access(selection.source)
        steps, offset = list(access.strides), access.offset
        for dim in selection.flipped:
            offset += (access.shape[dim] - 1) * steps[dim] if access.shape[dim] != 0 else 0
            steps[dim] = -steps[dim]
        shape = points_shape(self.member)
        strides = kernel.strides(points(self.member), shape, along(selection.walk, steps))
        terms = tuple((place, access.strides[dim]) for place, dim in places)
        return kernel.builder.load(kernel.input(access.root), strides, offset, terms)

    def position(self, node: Node) -> int:
        """The current position in the member itself."""
        steps = self.kernel.space.steps[self.member]
        return self.kernel.builder.index(self.kernel.ordered(steps))

    def index(self, shape: Sequence[Size], strides: Sequence[Size]) -> int:
        """A number that grows by `strides` along the dimensions of `shape`."""
        return self.kernel.builder.index(self.kernel.strides(points(self.member), shape, strides))


class _CreationReader:
    """Gives a repeated creator the position that one of a member's operands has in it.

    Only `arange` asks for it, which is contiguous: its positions are its addresses.
    """

    def __init__(self, reader: _Reader, operand: Node) -> None:
        self.reader = reader
        self.operand = operand

    def read(self, node: Node) -> int:
        raise AssertionError("a creator reads nothing")

    def select(self, selection: Selection, places: Sequence[tuple[int, int]]) -> int:
        raise AssertionError("a creator reads nothing")

    def position(self, node: Node) -> int:
        kernel = self.reader.kernel
        access = kernel.views.access(self.operand)
        strides = self.reader.strides(self.operand, access.strides)
        return kernel.builder.index(strides, access.offset)

    def index(self, shape: Sequence[Size], strides: Sequence[Size]) -> int:
        raise AssertionError("a creator has no rows")
