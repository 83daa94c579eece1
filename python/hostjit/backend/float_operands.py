# SPDX-License-Identifier: Apache-2.0
"""Floats among the inputs of a graph that AOTAutograd takes apart: Dynamo passes them as tensors.

A pass of PyTorch's gives operators the tensors in place of the numbers. It forgets what they are
called with by keyword, the `alpha` of sums and differences.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch._functorch._aot_autograd import graph_compile
from torch._prims_common import get_computation_dtype

from hostjit.replacements import replaced_attribute

__all__ = ["floats_with_alpha"]

aten = torch.ops.aten


def floats_with_alpha() -> contextlib.AbstractContextManager[Any]:
    """Have that pass find tensors in sums and differences with an `alpha`."""
    put_tensors = graph_compile._apply_tensorify_python_scalars

    def prepare_and_put_tensors(module: torch.fx.GraphModule) -> None:
        for node in list(module.graph.nodes):
            if node.target in (aten.add.Tensor, aten.sub.Tensor) and _is_float(node.args[1]):
                if "alpha" in node.kwargs:
                    _make_operand_a_tensor(node)
        put_tensors(module)

    return replaced_attribute(
        graph_compile, "_apply_tensorify_python_scalars", prepare_and_put_tensors
    )


def _is_float(operand: Any) -> bool:
    return isinstance(operand, torch.fx.Node) and isinstance(
        operand.meta.get("val"), torch.SymFloat
    )


def _make_operand_a_tensor(node: torch.fx.Node) -> None:
    """Multiply the number by a tensor that is 1, of the type that the operator computes in."""
    left, number = node.args
    result = node.meta["val"]
    dtype = get_computation_dtype(result.dtype)

    def call(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        made = node.graph.call_function(target, args, kwargs)
        values = torch.fx.node.map_arg((args, kwargs), lambda used: used.meta["val"])
        with result.fake_mode:
            made.meta = {**node.meta, "val": target(*values[0], **values[1])}
        return made

    with node.graph.inserting_before(node):
        one = call(aten.full.default, [], 1.0, dtype=dtype, device=result.device)
        operand = call(aten.mul.Tensor, one, number)
        made = call(node.target, left, operand, **node.kwargs)
        if made.meta["val"].dtype is not result.dtype:
            made = call(torch.ops.prims.convert_element_type.default, made, result.dtype)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
