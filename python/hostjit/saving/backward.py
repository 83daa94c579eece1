# SPDX-License-Identifier: Apache-2.0
"""How gradients of a program are computed, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.saving.tensors import TensorWriter

__all__ = ["backward_from_json", "backward_to_json"]


def backward_to_json(facts: dict[str, Any], tensors: TensorWriter) -> dict[str, Any]:
    """Write what `_C.BackwardPlan` describes, without its program."""
    inputs: list[Any] = []
    for source in facts["inputs"]:
        if isinstance(source, torch.Tensor):
            inputs.append(["tensor", tensors.add(source)])
        else:
            inputs.append(None if source is None else list(source))
    used = [source[1] for source in inputs if source and source[0] == "saved"]
    # Behind those are what second derivatives need, which are Python's.
    saved = [list(source) for source in facts["saved"][: max(used, default=-1) + 1]]
    return {**facts, "inputs": inputs, "saved": saved}


def backward_from_json(
    described: dict[str, Any] | None,
    forward: _C.CompiledProgram,
    programs: Sequence[_C.CompiledProgram],
    tensors: Sequence[torch.Tensor],
) -> _C.BackwardPlan | None:
    """Make the plan of a forward program; None where no result needs a gradient."""
    if described is None:
        return None

    def read(source: Any) -> Any:
        if source is None:
            return None
        return tensors[source[1]] if source[0] == "tensor" else tuple(source)

    return _C.BackwardPlan(
        forward=forward,
        backward=programs[described["program"]],
        num_results=described["num_results"],
        differentiable=described["differentiable"],
        updated=described["updated"],
        saved=[tuple(source) for source in described["saved"]],
        inputs=[read(source) for source in described["inputs"]],
        gradients=described["gradients"],
        reached=described["reached"],
        parts=described.get("parts", ()),
        saved_for=described.get("saved_for", ()),
        runtime=described["runtime"],
    )
