# SPDX-License-Identifier: Apache-2.0
"""Corrections where the fake result of an operator has another dtype than the real one."""

from __future__ import annotations

import operator
from typing import Any

import torch

__all__ = ["correct_result_types"]

aten = torch.ops.aten

# Results that have the dtype of an argument: {result: arguments}, the first that is a tensor.
# The fake statistics of norms have that of the operand, the real ones that of the parameters; the
# fake running statistics of the functional batch norms are float32 in half precision, and so is the
# gradient of a group norm whose parameters are.
_OF_BATCH = (1, 2, 3, 4, 0)
_TYPED_AS: dict[Any, dict[int, tuple[int, ...]]] = {
    aten._batch_norm_with_update_functional.default: {
        1: _OF_BATCH,
        2: _OF_BATCH,
        4: (3,),
        5: (4,),
    },
    aten._native_batch_norm_legit.no_stats: {1: (1, 2, 0), 2: (1, 2, 0)},
    aten._native_batch_norm_legit_functional.default: {
        1: _OF_BATCH,
        2: _OF_BATCH,
        3: (3,),
        4: (4,),
    },
    aten._native_batch_norm_legit_no_training.default: {1: _OF_BATCH, 2: _OF_BATCH},
    aten.native_group_norm.default: {1: (1, 2, 0), 2: (1, 2, 0)},
    aten.native_group_norm_backward.default: {0: (1,)},
    aten.native_layer_norm.default: {1: (2, 3, 0), 2: (2, 3, 0)},
}


def correct_result_types(graph: torch.fx.Graph) -> None:
    """Give the nodes of a traced graph the dtypes that their operators return."""
    for node in graph.nodes:
        for result, arguments in _TYPED_AS.get(node.target, {}).items():
            given = [node.args[argument] for argument in arguments]
            model = next(x.meta["val"] for x in given if isinstance(x, torch.fx.Node))
            values = list(node.meta["val"])
            if values[result] is None:  # a gradient that a mask turned off
                continue
            values[result] = values[result].to(model.dtype)
            node.meta["val"] = tuple(values)
            for user in node.users:
                if user.target is operator.getitem and user.args[1] == result:
                    _give(user, values[result])


def _give(node: torch.fx.Node, value: torch.Tensor) -> None:
    node.meta["val"] = value
    for user in node.users:
        if user.target is aten.detach.default:
            _give(user, value)
