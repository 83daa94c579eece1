# SPDX-License-Identifier: Apache-2.0
"""What one step of each optimizer does to one parameter.

The formulas are those of the single-tensor forms, which foreach and fused forms agree with to
rounding. Numbers that a schedule may change (`lr`, `betas`) are float64 tensors without dims, as
exact as the Python floats that they stand for; corrections of the bias are computed from them and
from the step counter in float64, as eager computes them in Python.

Half precision is computed in float32 and rounded where an operator of eager's ends. Eager rounds
some of the numbers (`weight_decay`, `lr`) to half precision, too; that is not taken over.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["RULES", "Rule", "Update", "kinds_with_rules", "rule_of"]


@dataclasses.dataclass(frozen=True)
class Update:
    """One parameter in a step; tensors as they are recorded in a graph.

    Attributes:
        group: the parameter group, for what is constant.
        param: the parameter, to be written in place.
        grad: its gradient.
        state: tensors of its state by name, to be written in place.
        numbers: what may change from step to step, by name; those of a tuple as a tuple.
        sizes: those of the parameter, its gradient and what is no counter of its state.
        is_half: parameter, gradient and state are of half precision.
    """

    group: Mapping[str, Any]
    param: Any
    grad: Any
    state: Mapping[str, Any]
    numbers: Mapping[str, Any]
    sizes: tuple[int, ...]
    is_half: bool

    def number(self, name: str) -> Any:
        """Return a number of the group, be it a constant or not."""
        return self.numbers.get(name, self.group[name])

    def read(self, tensor: Any) -> Any:
        """Return a tensor in the precision that operators compute in."""
        return tensor.float() if self.is_half else tensor

    def rounded(self, value: Any) -> Any:
        """Return what an operator of eager's leaves; fused forms are one, and round at its end."""
        if not self.is_half or self.group.get("fused"):
            return value
        return value.to(self.param.dtype).float()


@dataclasses.dataclass(frozen=True)
class Rule:
    """How to compile an optimizer.

    Attributes:
        numbers: keys of a group that are numbers, or tuples of numbers.
        state: the names of the tensors that a parameter of a group has.
        update: records one update.
        factors: keys of a group that are numbers, of which it only matters whether they are 0.
        counters: the names of the state that is numbers; they may be on the CPU where parameters
            are not.
    """

    numbers: tuple[str, ...]
    state: Callable[[Mapping[str, Any]], tuple[str, ...]]
    update: Callable[[Update], None]
    factors: tuple[str, ...] = ("weight_decay",)
    counters: tuple[str, ...] = ("step",)


def _sgd_state(group: Mapping[str, Any]) -> tuple[str, ...]:
    return ("momentum_buffer",) if group["momentum"] != 0 else ()


def _sgd(update: Update) -> None:
    group, rounded = update.group, update.rounded
    param, grad = update.read(update.param), update.read(update.grad)
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"] != 0:
        grad = rounded(grad + param * update.number("weight_decay"))
    if group["momentum"] != 0:
        kept = update.state["momentum_buffer"]
        buffer = rounded(update.read(kept) * update.number("momentum"))
        buffer = rounded(torch.add(buffer, grad, alpha=1 - group["dampening"]))
        kept.copy_(buffer)
        grad = rounded(grad + buffer * update.number("momentum")) if group["nesterov"] else buffer
    update.param.copy_(param - grad * update.numbers["lr"])


def _adam_state(group: Mapping[str, Any]) -> tuple[str, ...]:
    names = ("step", "exp_avg", "exp_avg_sq")
    return (*names, "max_exp_avg_sq") if group["amsgrad"] else names


def _adam(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    lr, (beta1, beta2) = update.numbers["lr"], update.numbers["betas"]
    param, grad = update.read(update.param), update.read(update.grad)
    mean, square = update.read(state["exp_avg"]), update.read(state["exp_avg_sq"])
    if group["maximize"]:
        grad = -grad
    count = state["step"].add_(1).to(torch.float64)
    if group["weight_decay"] != 0:
        if group.get("decoupled_weight_decay", False):
            param = rounded(param * (1 - lr * update.number("weight_decay")))
        else:
            grad = rounded(grad + param * update.number("weight_decay"))
    mean = rounded(mean + (grad - mean) * (1 - beta1))
    state["exp_avg"].copy_(mean)
    square = rounded(rounded(square * beta2) + grad * (1 - beta2) * grad)
    state["exp_avg_sq"].copy_(square)
    size = lr / (1 - torch.pow(beta1, count))
    correction = torch.sqrt(1 - torch.pow(beta2, count))
    if group["amsgrad"]:
        square = torch.maximum(update.read(state["max_exp_avg_sq"]), square)
        state["max_exp_avg_sq"].copy_(square)
    root = rounded(rounded(torch.sqrt(square)) / correction)
    update.param.copy_(param - mean * size / rounded(root + group["eps"]))


def _gradient(update: Update, param: Any) -> Any:
    """Return the gradient, turned where the optimizer maximizes, with the decay of weights."""
    grad = update.read(update.grad)
    if update.group["maximize"]:
        grad = -grad
    if update.group["weight_decay"] != 0 and not update.group.get("decoupled_weight_decay", False):
        grad = update.rounded(grad + param * update.number("weight_decay"))
    return grad


def _rmsprop_state(group: Mapping[str, Any]) -> tuple[str, ...]:
    of_momentum = ("momentum_buffer",) if group["momentum"] > 0 else ()
    of_mean = ("grad_avg",) if group["centered"] else ()
    return ("step", "square_avg", *of_momentum, *of_mean)


def _rmsprop(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    param, alpha = update.read(update.param), group["alpha"]
    grad = _gradient(update, param)
    state["step"].add_(1)
    square = rounded(rounded(update.read(state["square_avg"]) * alpha) + grad * grad * (1 - alpha))
    state["square_avg"].copy_(square)
    if group["centered"]:
        mean = update.read(state["grad_avg"])
        mean = rounded(mean + (grad - mean) * (1 - alpha))
        state["grad_avg"].copy_(mean)
        square = rounded(square - mean * mean)
    root = rounded(rounded(torch.sqrt(square)) + group["eps"])
    if group["momentum"] > 0:
        kept = update.read(state["momentum_buffer"])
        buffer = rounded(rounded(kept * update.number("momentum")) + grad / root)
        state["momentum_buffer"].copy_(buffer)
        update.param.copy_(param - buffer * update.numbers["lr"])
    else:
        update.param.copy_(param - update.numbers["lr"] * grad / root)


def _adagrad(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    param = update.read(update.param)
    grad = _gradient(update, param)
    count = state["step"].add_(1).to(torch.float64)
    size = update.numbers["lr"] / (1 + (count - 1) * group["lr_decay"])
    total = rounded(update.read(state["sum"]) + grad * grad)
    state["sum"].copy_(total)
    root = rounded(rounded(torch.sqrt(total)) + group["eps"])
    update.param.copy_(param - size * grad / root)


def _adamax(update: Update) -> None:
    state, rounded = update.state, update.rounded
    lr, (beta1, beta2) = update.numbers["lr"], update.numbers["betas"]
    param = update.read(update.param)
    grad = _gradient(update, param)
    count = state["step"].add_(1).to(torch.float64)
    mean = update.read(state["exp_avg"])
    mean = rounded(mean + (grad - mean) * (1 - beta1))
    state["exp_avg"].copy_(mean)
    kept = rounded(update.read(state["exp_inf"]) * beta2)
    largest = torch.maximum(kept, rounded(torch.abs(grad) + update.group["eps"]))
    state["exp_inf"].copy_(largest)
    update.param.copy_(param - lr / (1 - torch.pow(beta1, count)) * mean / largest)


def _nadam(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    lr, (beta1, beta2) = update.numbers["lr"], update.numbers["betas"]
    param = update.read(update.param)
    grad = _gradient(update, param)
    count = state["step"].add_(1).to(torch.float64)
    if group["weight_decay"] != 0 and group["decoupled_weight_decay"]:
        param = rounded(param * (1 - lr * update.number("weight_decay")))
    decay = group["momentum_decay"]
    now, following = (
        beta1 * (1 - 0.5 * torch.pow(0.96, steps * decay)) for steps in (count, count + 1)
    )
    product = state["mu_product"].mul_(now.to(state["mu_product"])).to(torch.float64)
    mean = update.read(state["exp_avg"])
    mean = rounded(mean + (grad - mean) * (1 - beta1))
    state["exp_avg"].copy_(mean)
    square = rounded(rounded(update.read(state["exp_avg_sq"]) * beta2) + grad * (1 - beta2) * grad)
    state["exp_avg_sq"].copy_(square)
    root = rounded(torch.sqrt(rounded(square / (1 - torch.pow(beta2, count)))))
    root = rounded(root + group["eps"])
    param = rounded(param - lr * (1 - now) / (1 - product) * grad / root)
    update.param.copy_(param - lr * following / (1 - product * following) * mean / root)


def _radam(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    lr, (beta1, beta2) = update.numbers["lr"], update.numbers["betas"]
    param = update.read(update.param)
    grad = _gradient(update, param)
    count = state["step"].add_(1).to(torch.float64)
    if group["weight_decay"] != 0 and group["decoupled_weight_decay"]:
        param = rounded(param * (1 - lr * update.number("weight_decay")))
    mean = update.read(state["exp_avg"])
    mean = rounded(mean + (grad - mean) * (1 - beta1))
    state["exp_avg"].copy_(mean)
    square = rounded(rounded(update.read(state["exp_avg_sq"]) * beta2) + grad * (1 - beta2) * grad)
    state["exp_avg_sq"].copy_(square)
    correction = 1 - torch.pow(beta2, count)
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * count * torch.pow(beta2, count) / correction
    rectified = torch.sqrt(
        (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    )
    change = rounded(rounded(mean / (1 - torch.pow(beta1, count))) * lr)
    root = rounded(rounded(torch.sqrt(square)) + group["eps"])
    adapted = rounded(rounded(change * rounded(torch.sqrt(correction) / root)) * rectified)
    update.param.copy_(param - torch.where(length > 5, adapted, change))


def _asgd(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    lr, decay = update.numbers["lr"], group["lambd"]
    param = update.read(update.param)
    grad = _gradient(update, param)
    count = state["step"].add_(1).to(torch.float64)
    size, weight = state["eta"].to(torch.float64), state["mu"].to(torch.float64)
    param = rounded(rounded(param * (1 - decay * size)) - grad * size)
    update.param.copy_(param)
    mean = update.read(state["ax"])
    mean = rounded(mean + rounded(rounded(param - mean) * weight))
    state["ax"].copy_(torch.where(weight == 1, param, mean))
    state["eta"].copy_(lr / torch.pow(1 + decay * lr * count, group["alpha"]))
    state["mu"].copy_(1 / torch.clamp(count - group["t0"], min=1.0))


def _rprop(update: Update) -> None:
    state, rounded = update.state, update.rounded
    (shrink, grow), (least, most) = update.group["etas"], update.group["step_sizes"]
    param, grad = update.read(update.param), update.read(update.grad)
    if update.group["maximize"]:
        grad = -grad
    state["step"].add_(1)
    turn = rounded(grad * update.read(state["prev"]))
    factor = torch.where(turn > 0, grow, torch.where(turn < 0, shrink, torch.sign(turn)))
    factor = torch.where(turn == 0, 1.0, factor)  # NaN stays
    size = rounded(update.read(state["step_size"]) * rounded(factor))
    size = torch.clamp(size, least, most)
    state["step_size"].copy_(size)
    grad = torch.where(turn < 0, 0.0, grad)
    update.param.copy_(param - torch.sign(grad) * rounded(size))
    state["prev"].copy_(grad)


def _adadelta(update: Update) -> None:
    group, state, rounded = update.group, update.state, update.rounded
    param, decay = update.read(update.param), group["rho"]
    grad = _gradient(update, param)
    state["step"].add_(1)
    square = rounded(rounded(update.read(state["square_avg"]) * decay) + grad * grad * (1 - decay))
    state["square_avg"].copy_(square)
    kept = update.read(state["acc_delta"])
    root, size = (rounded(torch.sqrt(rounded(x + group["eps"]))) for x in (square, kept))
    change = rounded(rounded(size / root) * grad)
    state["acc_delta"].copy_(rounded(rounded(kept * decay) + change * change * (1 - decay)))
    update.param.copy_(param - change * update.numbers["lr"])


def _muon(update: Update) -> None:
    group, rounded = update.group, update.rounded
    lr, momentum = update.numbers["lr"], update.numbers["momentum"]
    param, grad = update.read(update.param), update.read(update.grad)
    kept = update.read(update.state["momentum_buffer"])
    buffer = rounded(kept + (grad - kept) * (1 - momentum))
    update.state["momentum_buffer"].copy_(buffer)
    if group["nesterov"]:
        buffer = rounded(buffer - (buffer - grad) * (1 - momentum))
    is_tall = update.sizes[0] > update.sizes[1]
    change = _orthogonal(buffer.T if is_tall else buffer, group)
    change = change.T if is_tall else change
    param = rounded(param * (1 - lr * update.number("weight_decay")))
    ratio = _muon_ratio(group["adjust_lr_fn"], *update.sizes)
    update.param.copy_(param - change * (lr * ratio))


def _orthogonal(matrix: Any, group: Mapping[str, Any]) -> Any:
    """Return what Newton-Schulz iterations in bfloat16 make of a matrix: almost an orthogonal one.

    The quintic of K. Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024).
    """
    a, b, c = group["ns_coefficients"]
    found = matrix.to(torch.bfloat16)
    found = found / torch.clamp(torch.linalg.vector_norm(found), min=group["eps"])
    for _ in range(group["ns_steps"]):
        gram = found @ found.T
        polynomial = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.addmm(found, polynomial, found, beta=a)
    return found


def _muon_ratio(kind: str | None, rows: int, columns: int) -> float:
    """Return what the learning rate of a matrix is multiplied by."""
    if kind is None or kind == "original":
        return math.sqrt(max(1, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns)) if kind == "match_rms_adamw" else 1.0


RULES: dict[type, Rule] = {
    torch.optim.SGD: Rule(("lr",), _sgd_state, _sgd, ("momentum", "weight_decay")),
    torch.optim.Adam: Rule(("lr", "betas"), _adam_state, _adam),
    torch.optim.AdamW: Rule(("lr", "betas"), _adam_state, _adam),
    torch.optim.RMSprop: Rule(("lr",), _rmsprop_state, _rmsprop, ("momentum", "weight_decay")),
    torch.optim.Adagrad: Rule(("lr",), lambda _: ("step", "sum"), _adagrad),
    torch.optim.Adamax: Rule(("lr", "betas"), lambda _: ("step", "exp_avg", "exp_inf"), _adamax),
    torch.optim.RAdam: Rule(("lr", "betas"), lambda _: ("step", "exp_avg", "exp_avg_sq"), _radam),
    torch.optim.ASGD: Rule(("lr",), lambda _: ("step", "eta", "mu", "ax"), _asgd),
    torch.optim.Rprop: Rule(("lr",), lambda _: ("step", "prev", "step_size"), _rprop, ()),
    torch.optim.NAdam: Rule(
        ("lr", "betas"),
        lambda _: ("step", "mu_product", "exp_avg", "exp_avg_sq"),
        _nadam,
        counters=("step", "mu_product"),
    ),
    torch.optim.Adadelta: Rule(("lr",), lambda _: ("step", "square_avg", "acc_delta"), _adadelta),
}
if hasattr(torch.optim, "Muon"):
    RULES[torch.optim.Muon] = Rule(("lr", "momentum"), lambda _: ("momentum_buffer",), _muon)

# What a derived class may define of what an optimizer has: nothing of it is part of a step.
_BESIDE_STEPS = frozenset(
    {
        *("__init__", "__new__", "__init_subclass__", "__repr__", "__getstate__", "__setstate__"),
        *("__module__", "__doc__", "__annotations__", "__dict__", "__weakref__", "__hash__"),
        *("__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__"),
        *("zero_grad", "add_param_group", "state_dict", "load_state_dict"),
    }
)
# What an optimizer, and no class, has.
_OF_OBJECTS = frozenset({"param_groups", "state", "defaults", "__getattr__"})


def rule_of(kind: type[torch.optim.Optimizer]) -> Rule | None:
    """Return the rule of a class, or of the one that it is derived from and steps as; or None."""
    for place, base in enumerate(kind.__mro__):
        if base in RULES:
            return RULES[base] if kind.__mro__[place:] == base.__mro__ else None
        if not _steps_as_its_base(base, kind.__mro__[place + 1 :]):
            break
    return None


def _steps_as_its_base(kind: type, bases: tuple[type, ...]) -> bool:
    inherited = {name for base in bases for name in vars(base)} | _OF_OBJECTS
    own = inherited.intersection(vars(kind)) - _BESIDE_STEPS
    # PyTorch puts hooks around the step of a class when the first object is made.
    if own != {"step"}:
        return not own
    inherited_step = next(vars(base)["step"] for base in bases if "step" in vars(base))
    return _defined(vars(kind)["step"]) is _defined(inherited_step)


def _defined(step: Any) -> Any:
    return step.__wrapped__ if getattr(step, "hooked", False) else step


def kinds_with_rules() -> list[type[torch.optim.Optimizer]]:
    """Return the classes of which steps follow a rule: PyTorch's, and those derived of them."""
    found: dict[type, None] = {}
    pending: list[type] = list(RULES)
    while pending:
        kind = pending.pop()
        if kind not in found and rule_of(kind) is not None:
            found[kind] = None
            pending.extend(kind.__subclasses__())
    return list(found)
