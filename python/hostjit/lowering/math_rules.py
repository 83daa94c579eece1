# SPDX-License-Identifier: Apache-2.0
"""Matrix products of the math library."""

from __future__ import annotations

from torch.fx import Node

from hostjit.lowering.context import LoweringContext
from hostjit.lowering.registry import lowers
from hostjit.lowering.types import is_plain

__all__: list[str] = []


@lowers("aten.mm.default")
def lower_mm(context: LoweringContext, node: Node) -> bool:
    """mm(lhs, rhs) -> matmul."""
    lhs, rhs = node.args
    if not (is_plain(lhs) and is_plain(rhs)):
        return False
    fields = {"lhs": context.value(lhs), "rhs": context.value(rhs)}
    context.create("matmul", {**fields, "out": context.allocate(node)})
    return True


@lowers("aten.bmm.default")
def lower_bmm(context: LoweringContext, node: Node) -> bool:
    """bmm(lhs, rhs) -> bmm."""
    lhs, rhs = node.args
    if not (is_plain(lhs) and is_plain(rhs)):
        return False
    fields = {"lhs": context.value(lhs), "rhs": context.value(rhs)}
    context.create("bmm", {**fields, "out": context.allocate(node)})
    return True


@lowers("aten.addmm.default")
def lower_addmm(context: LoweringContext, node: Node) -> bool:
    """addmm(bias, lhs, rhs, beta=, alpha=) -> addmm; scalars that are no real number are left."""
    return _lower_sum(context, node, "addmm")


@lowers("aten.baddbmm.default")
def lower_baddbmm(context: LoweringContext, node: Node) -> bool:
    """baddbmm(bias, lhs, rhs, beta=, alpha=) -> baddbmm; as for addmm."""
    return _lower_sum(context, node, "baddbmm")


def _lower_sum(context: LoweringContext, node: Node, op: str) -> bool:
    bias, lhs, rhs = node.args
    beta, alpha = node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)
    if not all(is_plain(operand) for operand in (bias, lhs, rhs)):
        return False
    if not isinstance(beta, int | float) or not isinstance(alpha, int | float):
        return False
    context.create(
        op,
        {
            "bias": context.value(bias),
            "lhs": context.value(lhs),
            "rhs": context.value(rhs),
            "beta": float(beta),
            "alpha": float(alpha),
            "out": context.allocate(node),
        },
    )
    return True


@lowers("aten.linear.default")
def lower_linear(context: LoweringContext, node: Node) -> bool:
    """linear(input, weight, bias=None) with a 2-d weight -> linear."""
    source, weight = node.args[:2]
    bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    if not (is_plain(source) and is_plain(weight) and (bias is None or is_plain(bias))):
        return False
    assert isinstance(source, Node) and isinstance(weight, Node)
    if weight.meta["val"].dim() != 2 or source.meta["val"].dim() < 1:
        return False
    context.create(
        "linear",
        {
            "input": context.value(source),
            "weight": context.value(weight),
            "bias": None if bias is None else context.value(bias),
            "out": context.allocate(node),
        },
    )
    return True
