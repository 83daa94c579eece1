# SPDX-License-Identifier: Apache-2.0
"""Programs whose tensors, modules, classes and hooks are changed between calls."""

from __future__ import annotations

import collections
import contextvars
import copy
import enum
import functools
from typing import Any, ClassVar

import torch
from program_list import Programs, Step, Wrap
from torch import nn
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_post_hook

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
# Backward passes through graphs that others have built, and what is asked of such graphs.
RUN_EAGERLY = frozenset({"backward_of_a_result", "gradient_retained", "retains_grad"})
program = PROGRAMS.register
randn = torch.randn


class Doubled(nn.Module):
    def forward(self, weight):
        return weight * 2


class Flags(enum.Flag):
    FIRST = 1
    SECOND = 2


def trained(parameters, model):
    optimizer = torch.optim.SGD(parameters, lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@program
def backward_of_a_result(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)

    def g(x):
        (x * x).sum().backward()
        return x.detach() + 1

    f = wrap(g)

    def step(i):
        weight.grad = None
        return f(weight * (3 if i < 5 else 4)), weight.grad.clone()

    return step


@program
def backward_of_leaves_and_results(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)

    def g(x):
        (x * x).sum().backward()
        return x.detach() + 1

    f = wrap(g)

    def step(i):
        weight.grad = None
        leaf = randn(2, requires_grad=True)
        y = f(weight * 3 if i in (4, 6) else leaf)
        return y, [torch.zeros(2) if x.grad is None else x.grad.clone() for x in (weight, leaf)]

    return step


@program
def gradients_of_a_result_kept_outside(wrap: Wrap) -> Step:
    weight, kept = randn(2, requires_grad=True), []

    def g(x):
        (x * kept[0]).sum().backward()
        return x + 1

    f = wrap(g)

    def step(i):
        weight.grad = None
        kept[:] = [weight * i if i in (4, 6) else randn(2, requires_grad=True)]
        return f(randn(2)), torch.zeros(2) if weight.grad is None else weight.grad.clone()

    return step


@program
def gradient_retained(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)

    def g(x):
        x.retain_grad()
        (x * 2).sum().backward()
        return x.grad.clone()

    f = wrap(g)

    def step(i):
        weight.grad = None
        return f(weight * 3), weight.grad.clone()

    return step


@program
def retains_grad(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)
    f = wrap(lambda x: x * (2 if x.retains_grad else 3))

    def step(i):
        x = weight * 1
        if i > 4:
            x.retain_grad()
        return f(x).detach()

    return step


@program
def method_of_tensors_added(wrap: Wrap) -> Step:
    f = wrap(lambda x: x.halved() if hasattr(x, "halved") else x)

    def step(i):
        if i == 4:
            torch.Tensor.halved = lambda self: self / 2  # type: ignore[attr-defined]
        try:
            return f(randn(2))
        finally:
            if i == 6:
                del torch.Tensor.halved  # type: ignore[attr-defined]

    return step


@program
def method_of_tensors_replaced(wrap: Wrap) -> Step:
    original = torch.Tensor.sin
    f = wrap(lambda x: x.sin())

    def step(i):
        if i == 4:
            torch.Tensor.sin = torch.Tensor.cos  # type: ignore[method-assign, assignment]
        try:
            return f(randn(2))
        finally:
            if i == 6:
                torch.Tensor.sin = original  # type: ignore[method-assign]

    return step


@program
def parametrizations_kept(wrap: Wrap) -> Step:
    model = nn.Linear(2, 2)
    parametrize.register_parametrization(model, "weight", Doubled())
    f = wrap(model)

    def step(i):
        x = randn(2)
        if i % 4 != 3:
            return f(x).detach(), f(x).detach()
        with parametrize.cached():
            first = f(x).detach()
            with torch.no_grad():
                model.parametrizations.weight.original.add_(1)
            return first, f(x).detach()

    return step


@program
def parametrized_later(wrap: Wrap) -> Step:
    model = nn.Linear(2, 2)
    f = wrap(model)

    def step(i):
        if i == 3:
            parametrize.register_parametrization(model, "weight", Doubled())
        if i == 5:
            model.parametrizations.weight.append(Doubled())
        if i == 7:
            parametrize.remove_parametrizations(model, "weight")
        return f(randn(2)).detach()

    return step


@program
def parameters_swapped(wrap: Wrap) -> Step:
    model = nn.Linear(2, 2)
    f = wrap(lambda x: model(x).detach())

    def step(i):
        if i in (4, 6):
            torch.utils.swap_tensors(model.weight, nn.Parameter(randn(2, 2)))
        return f(randn(2))

    return step


@program
def parameters_swapped_in_training(wrap: Wrap) -> Step:
    model = nn.Linear(2, 2)
    f = wrap(trained(model.parameters(), model))

    def step(i):
        if i in (4, 6):
            torch.utils.swap_tensors(model.weight, nn.Parameter(randn(2, 2)))
        return f(randn(3, 2)), model.weight.detach().clone()

    return step


@program
def types_swapped(wrap: Wrap) -> Step:
    model = nn.Linear(2, 2)
    f = wrap(lambda x: model(x.to(model.weight.dtype)).detach())

    def step(i):
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        if i == 4:
            model.double()
        if i == 6:
            model.float()
        torch.__future__.set_swap_module_params_on_conversion(swaps)
        return f(randn(2))

    return step


@program
def hook_of_all_optimizers(wrap: Wrap) -> Step:
    model, hooks = nn.Linear(2, 2), []
    f = wrap(trained(model.parameters(), model))

    def step(i):
        if i == 4:
            hook = register_optimizer_step_post_hook(lambda *_: model.weight.data.zero_())
            hooks.append(hook)
        try:
            return f(randn(3, 2)), model.weight.detach().clone()
        finally:
            if i == 6:
                hooks[0].remove()

    return step


@program
def group_of_parameters_added(wrap: Wrap) -> Step:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1, momentum=0.9)

    def g(x):
        optimizer.zero_grad()
        second.zero_grad()
        loss = second(first(x)).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = wrap(g)

    def step(i):
        if i == 4:
            optimizer.add_param_group({"params": list(second.parameters()), "lr": 0.01})
        if i == 6:
            optimizer.param_groups[0]["momentum"] = 0.5
        if i == 7:
            optimizer.state.clear()
        return f(randn(3, 2)), first.weight.detach().clone(), second.weight.detach().clone()

    return step


@program
def memory_shared_later(wrap: Wrap) -> Step:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)

    def g(x):
        with torch.no_grad():
            first.weight.mul_(1.1)
            second.weight.add_(0.1)
        return second(first(x)).detach()

    f = wrap(g)

    def step(i):
        if i == 4:
            second.weight.data = first.weight.data
        if i == 7:
            second.weight.data = second.weight.data.clone()
        return f(randn(3, 2))

    return step


@program
def weights_tied_later(wrap: Wrap) -> Step:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    own = second.weight

    def g(x):
        second(first(x)).sum().backward()
        gradient = first.weight.grad.clone()
        first.zero_grad()
        second.zero_grad()
        return gradient

    f = wrap(g)

    def step(i):
        if i == 4:
            second.weight = first.weight
        if i == 7:
            second.weight = own
        return f(randn(3, 2))

    return step


@program
def buffer_registered_again(wrap: Wrap) -> Step:
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("factor", torch.ones(2))

        def forward(self, x):
            return x * self.factor

    model: Any = Scale()
    f = wrap(model)

    def step(i):
        if i == 3:
            model.register_buffer("factor", torch.full((2,), 2.0))
        if i == 5:
            model.factor = torch.full((2,), 4.0)
        if i == 6:
            del model.factor
            model.factor = 5.0
        if i == 7:
            del model.factor
            model.register_buffer("factor", torch.tensor(3.0))
        return f(randn(2))

    return step


@program
def table_of_modules(wrap: Wrap) -> Step:
    modules = nn.ModuleDict({"a": nn.ReLU()})

    def g(x):
        for name, module in modules.items():
            x = module(x) + len(name)
        return x

    f = wrap(g)

    def step(i):
        if i == 3:
            modules["bb"] = nn.Tanh()
        if i == 5:
            modules.pop("a")
        if i == 6:
            modules.update({"ccc": nn.Sigmoid()})
        if i == 7:  # now last
            modules["bb"] = modules.pop("bb")
        return f(randn(2))

    return step


@program
def memory_of_a_tensor_set(wrap: Wrap) -> Step:
    kept = torch.arange(6.0)
    f = wrap(lambda x: x + kept.sum() + kept.shape[0])

    def step(i):
        if i == 3:
            kept.resize_(4)
        if i == 5:
            kept.set_(torch.ones(6))  # type: ignore[call-overload]
        if i == 7:
            kept.set_(torch.arange(12.0).as_strided((6,), (2,)))  # type: ignore[call-overload]
        return f(randn(2))

    return step


@program
def detached_in_place(wrap: Wrap) -> Step:
    kept = randn(2, requires_grad=True) * 2
    f = wrap(lambda x: x * kept)

    def step(i):
        if i == 4:
            kept.detach_()
        if i == 6:
            kept.requires_grad_()
        y = f(randn(2))
        return y.detach(), torch.tensor(y.requires_grad)

    return step


@program
def copied_with_its_captured_method(wrap: Wrap) -> Step:
    class Actor(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.act = wrap(self.run)

        def run(self, x):
            return (x * self.weight).detach()

    actors = [Actor()]

    def step(i):
        x = randn(2)
        if i == 5:
            actors.append(copy.deepcopy(actors[0]))
            actors[1].weight.data.fill_(7.0)
        return [actor.act(x) for actor in actors]

    return step


@program
def property_computed_once(wrap: Wrap) -> Step:
    class Table:
        base = 2.0

        @functools.cached_property
        def factor(self):
            return self.base * 2

    table = Table()
    f = wrap(lambda x: x * table.factor)

    def step(i):
        if i == 4:
            table.base = 7.0
        if i == 5:
            del table.__dict__["factor"]
        if i == 7:
            table.__dict__["factor"] = 1.5
        return f(randn(2))

    return step


@program
def registry_of_a_metaclass(wrap: Wrap) -> Step:
    class Registered(type):
        classes: ClassVar[list[Any]] = []

        def __init__(cls, *args):
            super().__init__(*args)
            Registered.classes.append(cls)

    Registered("First", (), {"factor": 2.0})
    f = wrap(lambda x: x * sum(kind.factor for kind in Registered.classes))

    def step(i):
        if i == 4:
            Registered("Second", (), {"factor": 3.0})
        if i == 6:
            Registered.classes[1].factor = 1.0
        return f(randn(2))

    return step


@program
def flags(wrap: Wrap) -> Step:
    state = {"flags": Flags.FIRST}

    def g(x):
        y = x + 1 if Flags.FIRST in state["flags"] else x
        return y * 2 if Flags.SECOND & state["flags"] else y

    f = wrap(g)

    def step(i):
        if i == 3:
            state["flags"] |= Flags.SECOND
        if i == 6:
            state["flags"] &= ~Flags.FIRST
        return f(randn(2))

    return step


@program
def context_of_a_call(wrap: Wrap) -> Step:
    scale = contextvars.ContextVar("scale", default=1.0)
    f = wrap(lambda x: x * scale.get())

    def step(i):
        x = randn(2)

        def scaled():
            scale.set(float(i))
            return f(x)

        return contextvars.copy_context().run(scaled) if i % 3 == 2 else f(x)

    return step


@program
def chain_of_maps(wrap: Wrap) -> Step:
    first, second = {"a": 1.0}, {"a": 2.0, "b": 3.0}
    chain = collections.ChainMap(first, second)
    f = wrap(lambda x: x * chain["a"] + chain["b"])

    def step(i):
        if i == 3:
            del first["a"]
        if i == 5:
            chain.maps.insert(0, {"b": 9.0})
        if i == 7:
            second["a"] = 6.0
        return f(randn(2))

    return step


@program
def code_of_a_function(wrap: Wrap) -> Step:
    def helper(x):
        return x * 2

    def other(x):
        return x * 5

    f = wrap(lambda x: helper(x))

    def step(i):
        if i == 4:
            helper.__code__ = other.__code__
        return f(randn(2))

    return step
