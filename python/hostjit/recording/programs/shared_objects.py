# SPDX-License-Identifier: Apache-2.0
"""Which variables have one tensor behind passes of a loop that go several ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch.fx import Graph, Node

from hostjit.bytecode.loops import PassVariables
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    GraphOutput,
    SharedOutput,
    TupleOutput,
)
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.carried import CannotCarryError
from hostjit.recording.programs.fake_calls import FakeCalls
from hostjit.recording.programs.ways import Way

__all__ = ["SharedObjects", "shared_objects"]

aten = torch.ops.aten
_TENSORS = (GraphOutput, ArgumentOutput)


@dataclasses.dataclass(frozen=True)
class SharedObjects:
    """Numbers that tell which variables have the same tensor, of passes that go several ways.

    A tensor among the arguments has that of its leaf. What a pass makes has others.

    Attributes:
        positions: of the variables, among what a pass returns.
        begin: their numbers ahead of the first pass.
        leaves: all leaves that a variable may have.
        flags: results that tell which way a pass takes.
        ways: what the variables have behind each way: another one's number, by its index, the leaf
            of an argument, or a result.
        stride: how many results a way may have.
    """

    positions: tuple[int, ...]
    begin: tuple[int, ...]
    leaves: tuple[int, ...]
    flags: tuple[int, ...]
    ways: tuple[tuple[tuple[str, int], ...], ...]
    stride: int

    def after(
        self,
        call: FakeCalls,
        graph: Graph,
        flags: Sequence[Node],
        numbers: Sequence[Node],
        count: Node,
    ) -> list[Node]:
        """Return the numbers behind a pass."""
        first = max(self.leaves, default=-1) + 1
        fresh = call(
            graph, aten.add.Scalar, call(graph, aten.mul.Scalar, count, self.stride), first
        )
        made: list[Node] = []
        for index in range(len(self.positions)):
            by_way = []
            for way in self.ways:
                kind, value = way[index]
                if kind == "variable":
                    by_way.append(numbers[value])
                elif kind == "leaf":
                    by_way.append(call(graph, aten.full.default, [], value, dtype=torch.int64))
                else:
                    by_way.append(call(graph, aten.add.Scalar, fresh, value))
            now = by_way[-1]
            for flag, other in zip(flags[:-1], by_way[:-1], strict=True):
                now = call(graph, aten.where.self, flag, other, now)
            made.append(now)
        return made

    def shared(self, output: TupleOutput) -> SharedOutput:
        """Return what the last pass returns."""
        arguments = map(ArgumentOutput, self.leaves)
        return SharedOutput((GraphOutput(1), output, *arguments), self.positions, self.leaves)


def shared_objects(
    way: Way, recorder: Recorder, variables: PassVariables, args: Sequence[Any], changed: Set[int]
) -> SharedObjects | None:
    """Return the numbers of variables with tensors; None where each pass makes all of them.

    `changed`: the tensors among the arguments that are others in the next pass.

    Raises CannotCarryError.
    """
    items, outputs = way.output.items, [output.items for _, output in way.joined]
    taken = dict(zip(variables.taken, args, strict=False))
    # What they return begins with where a pass leads, if with anything else.
    names = dict(enumerate(variables.given, len(items) - len(variables.given) - variables.counts))
    begin: dict[int, int] = {}
    own: dict[int, int] = {}
    for position, item in enumerate(items):
        if isinstance(item, GraphOutput) and all(
            isinstance(o[position], _TENSORS) for o in outputs
        ):
            value = taken.get(names[position])
            leaf = recorder.leaf_of(value) if isinstance(value, torch.Tensor) else None
            if leaf is not None:
                own[leaf] = len(begin)
            begin[position] = leaf or 0
    ways = []
    for output in outputs:
        found = []
        for position in begin:
            match output[position]:
                case GraphOutput(index):
                    found.append(("result", index))
                case ArgumentOutput(leaf) if leaf in own:
                    found.append(("variable", own[leaf]))
                case ArgumentOutput(leaf) if leaf not in changed:
                    found.append(("leaf", leaf))
                case _:
                    raise CannotCarryError
        ways.append(tuple(found))
    if all(len({*way}) == len(way) and all(kind == "result" for kind, _ in way) for way in ways):
        return None
    others = {value for way in ways for kind, value in way if kind == "leaf"}
    results = [value for way in ways for kind, value in way if kind == "result"]
    return SharedObjects(
        positions=tuple(begin),
        begin=tuple(begin.values()),
        leaves=tuple(sorted({*own} | others)),
        flags=tuple(flag for flag, _ in way.joined),
        ways=tuple(ways),
        stride=1 + max(results, default=0),
    )
