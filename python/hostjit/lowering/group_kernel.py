# SPDX-License-Identifier: Apache-2.0
"""The kernel of a group: its members' instructions over the group's iteration space."""

from __future__ import annotations

from collections.abc import Sequence, Set

from torch.fx import Node

from hostjit.kernels import KernelBuilder, PointwiseKernel
from hostjit.lowering.iteration_space import IterationSpace, Radix
from hostjit.lowering.pointwise import dtype_of, emit
from hostjit.lowering.views import Views

__all__ = ["build_kernel"]


def build_kernel(
    name: str,
    members: Sequence[Node],
    outputs: Sequence[Node],
    space: IterationSpace,
    views: Views,
    creators: Set[Node],
) -> tuple[PointwiseKernel, tuple[Node, ...]]:
    """Write a group as a kernel.

    Arguments: the kernel's name; the members in the graph's order and those among them to store;
    the space in which all of them are aligned; the graph's views, and the nodes that are repeated
    where they are used.
    Returns: the kernel, and the nodes whose buffers it reads, in operand order.
    """
    return _GroupKernel(name, members, space, views, creators).build(outputs)


class _GroupKernel:
    def __init__(
        self,
        name: str,
        members: Sequence[Node],
        space: IterationSpace,
        views: Views,
        creators: Set[Node],
    ) -> None:
        self.members = members
        self.space = space
        self.views = views
        self.creators = creators
        self.builder = KernelBuilder(name, space.sizes)
        self.values: dict[Node, int] = {}
        self.inputs: dict[Node, int] = {}

    def build(self, outputs: Sequence[Node]) -> tuple[PointwiseKernel, tuple[Node, ...]]:
        for member in self.members:
            reader = _Reader(self, member)
            self.values[member] = emit(member, self.builder, reader)
        for node in outputs:
            strides = self.strides(node, node.meta["val"].stride())
            operand = self.builder.output(dtype_of(node))
            self.builder.store(operand, self.values[node], strides)
        return self.builder.build(), tuple(self.inputs)

    def strides(self, member: Node, strides: Sequence[int]) -> tuple[int, ...]:
        """Strides along the member's dimensions, along those of the space."""
        radix = Radix.of_shape(member.meta["val"].shape)
        result = radix.translate(self.space.steps[member], self.space.sizes, strides)
        assert result is not None, f"'{member.name}' is not aligned with its group"
        return result

    def input(self, root: Node) -> int:
        if root not in self.inputs:
            self.inputs[root] = self.builder.input(dtype_of(root))
        return self.inputs[root]


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
        strides = kernel.strides(self.member, self.broadcast(access.shape, access.strides))
        return kernel.builder.load(kernel.input(access.root), strides, access.offset)

    def position(self, node: Node) -> int:
        """The current position in the member itself."""
        return self.kernel.builder.index(self.kernel.space.steps[self.member])

    def broadcast(self, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
        """Strides of an operand along the member's dimensions."""
        rank = len(self.member.meta["val"].shape)
        own = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
        return tuple([0] * (rank - len(own)) + own)


class _CreationReader:
    """Gives a repeated creator the position that one of a member's operands has in it.

    Only `arange` asks for it, which is contiguous: its positions are its addresses.
    """

    def __init__(self, reader: _Reader, operand: Node) -> None:
        self.reader = reader
        self.operand = operand

    def read(self, node: Node) -> int:
        raise AssertionError("a creator reads nothing")

    def position(self, node: Node) -> int:
        kernel = self.reader.kernel
        access = kernel.views.access(self.operand)
        strides = self.reader.broadcast(access.shape, access.strides)
        return kernel.builder.index(kernel.strides(self.reader.member, strides), access.offset)
