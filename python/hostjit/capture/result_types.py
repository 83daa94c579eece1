# SPDX-License-Identifier: Apache-2.0
"""Corrections where the fake result of an operator has another dtype than the real one."""

from __future__ import annotations

import operator
from typing import Any

import torch

__all__ = ["correct_result_types"]

aten = torch.ops.aten

# Results that have the dtype of an argument: {result: argument}. The fake ones of the functional
# batch norms are float32 for the running statistics of half precision.
_TYPED_AS: dict[Any, dict[int, int]] = {
    aten._native_batch_norm_legit_functional.default: {3: 3, 4: 4},
    aten._batch_norm_with_update_functional.default: {4: 3, 5: 4},
}


def correct_result_types(graph: torch.fx.Graph) -> None:
    """Give the nodes of a traced graph the dtypes that their operators return."""
    for node in graph.nodes:
        for result, argument in _TYPED_AS.get(node.target, {}).items():
            model = node.args[argument].meta["val"]
            values = list(node.meta["val"])
            values[result] = values[result].to(model.dtype)
            node.meta["val"] = tuple(values)
            for user in node.users:
                if user.target is operator.getitem and user.args[1] == result:
                    user.meta["val"] = values[result]
