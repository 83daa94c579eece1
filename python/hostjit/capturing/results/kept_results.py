# SPDX-License-Identifier: Apache-2.0
"""Results of a graph whose backward pass was parted from it, which may stand in other places."""

from __future__ import annotations

from collections.abc import Sequence

from hostjit.capturing.gradients.backward import Backward, ResultKept
from hostjit.capturing.program import ArgumentLeaf, BoundTensor, InputBinding
from hostjit.capturing.results.outputs import (
    ArgumentOutput,
    BoundOutput,
    GraphOutput,
    Output,
    map_outputs,
)

__all__ = ["over_kept_results"]


def over_kept_results(spec: Output, backward: Backward, inputs: Sequence[InputBinding]) -> Output:
    """Return the spec over the results of the forward graph, where it was over the whole one's."""

    def replace(output: GraphOutput) -> Output:
        place = backward.results[output.index]
        if isinstance(place, ResultKept):
            return GraphOutput(place.index)
        binding = inputs[place.index]
        if isinstance(binding, ArgumentLeaf):
            return ArgumentOutput(binding.index)
        assert isinstance(binding, BoundTensor)
        return BoundOutput(binding.tensor)

    return map_outputs(spec, replace)
