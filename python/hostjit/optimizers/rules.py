# SPDX-License-Identifier: Apache-2.0
"""What one step of each optimizer does to one parameter.

The formulas are those of the single-tensor forms, which foreach and fused forms agree with to
rounding. Numbers that a schedule may change (`lr`, `betas`) are float64 tensors without dims, as
exact as the Python floats that they stand for; corrections of the bias are computed from them and
from the step counter in float64, as eager computes them in Python.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["RULES", "Rule", "Update"]


@dataclasses.dataclass(frozen=True)
class Update:
    """One parameter in a step; tensors as they are recorded in a graph.

    Attributes:
        group: the parameter group, for what is constant.
        param: the parameter, to be written in place.
        grad: its gradient.
        state: tensors of its state by name, to be written in place.
        numbers: what may change from step to step, by name; those of a tuple as a tuple.
    """

    group: Mapping[str, Any]
    param: Any
    grad: Any
    state: Mapping[str, Any]
    numbers: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Rule:
    """How to compile an optimizer.

    Attributes:
        numbers: keys of a group that are numbers, or tuples of numbers.
        state: the names of the tensors that a parameter of a group has.
        update: records one update.
    """

    numbers: tuple[str, ...]
    state: Callable[[Mapping[str, Any]], tuple[str, ...]]
    update: Callable[[Update], None]


def _sgd_state(group: Mapping[str, Any]) -> tuple[str, ...]:
    return ("momentum_buffer",) if group["momentum"] != 0 else ()


def _sgd(update: Update) -> None:
    group, param = update.group, update.param
    grad = -update.grad if group["maximize"] else update.grad
    if group["weight_decay"] != 0:
        grad = grad + param * group["weight_decay"]
    if group["momentum"] != 0:
        buffer = update.state["momentum_buffer"]
        buffer.mul_(group["momentum"]).add_(grad, alpha=1 - group["dampening"])
        grad = grad + buffer * group["momentum"] if group["nesterov"] else buffer
    param.sub_(grad * update.numbers["lr"])


def _adam_state(group: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("step", "exp_avg", "exp_avg_sq")
    return (*names, "max_exp_avg_sq") if group["amsgrad"] else names


def _adam(update: Update) -> None:
    group, param, state = update.group, update.param, update.state
    lr, (beta1, beta2) = update.numbers["lr"], update.numbers["betas"]
    grad = -update.grad if group["maximize"] else update.grad
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    count = state["step"].add_(1).to(torch.float64)
    if group["weight_decay"] != 0:
        if group.get("decoupled_weight_decay", False):
            param.mul_(1 - lr * group["weight_decay"])
        else:
            grad = grad + param * group["weight_decay"]
    mean.add_((grad - mean) * (1 - beta1))
    square.mul_(beta2).add_(grad * (1 - beta2) * grad)
    size = lr / (1 - torch.pow(beta1, count))
    correction = torch.sqrt(1 - torch.pow(beta2, count))
    if group["amsgrad"]:
        square = state["max_exp_avg_sq"].copy_(torch.maximum(state["max_exp_avg_sq"], square))
    param.sub_(mean * size / (torch.sqrt(square) / correction + group["eps"]))


# By exact class: a subclass may do something else.
RULES: dict[type, Rule] = {
    torch.optim.SGD: Rule(("lr",), _sgd_state, _sgd),
    torch.optim.Adam: Rule(("lr", "betas"), _adam_state, _adam),
    torch.optim.AdamW: Rule(("lr", "betas"), _adam_state, _adam),
}
