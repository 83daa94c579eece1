# SPDX-License-Identifier: Apache-2.0
"""Activation functions whose operators have several results; nothing is reduced."""

from __future__ import annotations

from hostjit.lowering.reductions import ReductionContext, reduces

__all__: list[str] = []


@reduces("aten.log_sigmoid_forward.default", rows=None, results=("element", "element"))
def log_sigmoid(context: ReductionContext) -> tuple[int, int]:
    """The second result is what eager keeps for the gradient."""
    x = context.first_operand()
    magnitude = context.apply("abs", x)
    return context.apply("log_sigmoid", x), context.apply("exp", context.apply("neg", magnitude))
