# SPDX-License-Identifier: Apache-2.0
"""Programs over modules that are changed between calls, or change what they are made of."""

from __future__ import annotations

import copy
import warnings

import torch
from program_list import Programs, Step, Wrap
from torch import nn

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn

# Their hooks assign an attribute at each call.
RUN_EAGERLY = frozenset({"weight_norm_hook", "weight_norm_trained"})


def values_of(module):
    return [parameter.detach().clone() for parameter in module.parameters()]


def normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(3, 2))


def trained(model, optimizer):
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@program
def attributes_of_a_table(wrap: Wrap) -> Step:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.table = {"gain": 1.0}

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return self.table[name]

        def forward(self, x):
            return self.layer(x) * self.gain

    model = Model()
    f = wrap(model)

    def step(i):
        model.table["gain"] = 1.0 if i < 5 else 3.0
        with torch.no_grad():
            return f(randn(2))

    return step


@program
def attributes_of_a_wrapped_module(wrap: Wrap) -> Step:
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("module"), name)

        def forward(self, x):
            return self.layer(x) + self.shift

    inner = nn.Module()
    inner.layer, inner.shift = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    wrapper = Wrapper(inner)
    f = wrap(wrapper)

    def step(i):
        if i == 4:
            inner.shift = nn.Parameter(torch.full((2,), 5.0))
        if i == 6:
            wrapper.module = copy.deepcopy(inner)
            wrapper.module.shift.data.zero_()
        with torch.no_grad():
            return f(randn(2))

    return step


@program
def weight_norm_hook(wrap: Wrap) -> Step:
    model = normed()
    f = wrap(lambda x: model(x))

    def step(i):
        with torch.no_grad():
            if i == 5:
                nn.utils.remove_weight_norm(model)
            (model.weight_g if i < 5 else model.weight).mul_(1.1)
            return f(randn(2, 3)), model.weight

    return step


@program
def weight_norm_trained(wrap: Wrap) -> Step:
    model = normed()
    f = wrap(trained(model, torch.optim.Adam(model.parameters(), 0.1)))
    return lambda i: (f(randn(2, 3)), values_of(model), model.weight.detach().clone())


@program
def spectral_norm(wrap: Wrap) -> Step:
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    f = wrap(trained(model, torch.optim.SGD(model.parameters(), 0.1)))

    def step(i):
        model.train(i % 4 != 3)
        buffers = [buffer.clone() for buffer in model.buffers()]
        return f(randn(2, 3)), values_of(model), buffers

    return step


@program
def parametrization_taken_off(wrap: Wrap) -> Step:
    class Doubled(nn.Module):
        def forward(self, weight):
            return weight * 2

    model = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(model, "weight", Doubled())
    f = wrap(lambda x: model(x))

    def step(i):
        if i == 4:
            nn.utils.parametrize.remove_parametrizations(model, "weight")
        if i == 6:
            nn.utils.parametrize.register_parametrization(model, "weight", Doubled())
        with torch.no_grad():
            return f(randn(2, 3))

    return step


@program
def frozen_now_and_then(wrap: Wrap) -> Step:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    f = wrap(trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)))

    def step(i):
        model[0].requires_grad_(i % 3 != 1)
        loss = f(randn(4, 3))
        gradients = [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
        return loss, values_of(model), gradients

    return step


@program
def frozen_with_a_gradient(wrap: Wrap) -> Step:
    model = nn.Linear(3, 3).requires_grad_(False)

    def clear(x):
        model.zero_grad()
        return model(x)

    f = wrap(clear)

    def step(i):
        if i in (4, 7):
            model.weight.grad = torch.ones(3, 3)
        return f(randn(2, 3)), model.weight.grad

    return step


@program
def gradient_dropped(wrap: Wrap) -> Step:
    def drop(x, weight):
        weight.grad = None
        return x * weight

    f = wrap(drop)

    def step(i):
        weight = torch.ones(3, requires_grad=i < 5)
        if i % 3 == 1:
            weight.grad = torch.ones(3)
        return f(randn(3), weight).detach(), weight.grad

    return step


@program
def attributes_of_parameters(wrap: Wrap) -> Step:
    model = nn.Linear(3, 3)

    def total(x):
        gains = [getattr(p, "gain", 1.0) for p in model.parameters()]
        return x * sum(gains)

    f = wrap(total)

    def step(i):
        if i == 4:
            model.weight.gain = 5.0
        if i == 6:
            model.bias.gain = 3.0
        return f(randn(3))

    return step


@program
def attributes_of_arguments(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * getattr(x, "gain", 1.0) if hasattr(x, "gain") else x)

    def step(i):
        x = torch.ones(3)
        if i in (4, 7):
            x.gain = 5.0
        return f(x)

    return step


@program
def averaged(wrap: Wrap) -> Step:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    multi = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=multi, use_buffers=True)
    train = trained(model, optimizer)

    def both(x):
        loss = train(x)
        average.update_parameters(model)
        return loss

    f = wrap(both)
    return lambda i: (
        f(randn(4, 3)),
        values_of(average),
        [buffer.clone() for buffer in average.buffers()],
    )


@program
def swapped(wrap: Wrap) -> Step:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    f = wrap(torch.no_grad()(lambda x: model(x)))

    def step(i):
        if i == 3:
            model[1] = nn.Tanh()
        if i == 5:
            model[0] = nn.Linear(3, 3)
        if i == 7:
            model.append(nn.Sigmoid())
        return f(randn(2, 3))

    return step


@program
def loaded(wrap: Wrap) -> Step:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    saved = copy.deepcopy(model.state_dict())
    f = wrap(lambda x: model(x).sum())

    def step(i):
        if i == 4:
            model.load_state_dict(saved)
        if i == 6:
            model.load_state_dict(copy.deepcopy(saved), assign=True)
        result = f(randn(4, 3))
        result.backward()
        gradients = [p.grad if p.grad is None else p.grad.clone() for p in model.parameters()]
        return result.detach(), gradients, [buffer.clone() for buffer in model.buffers()]

    return step


@program
def state_of_an_optimizer(wrap: Wrap) -> Step:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    f = wrap(trained(model, optimizer))

    def step(i):
        state = optimizer.state[model.weight]
        if i == 4:
            state["momentum_buffer"].zero_()
        if i == 5:
            state["momentum_buffer"] = torch.ones(3, 3)
        if i == 6:
            optimizer.state.clear()
        if i == 7:
            optimizer.param_groups[0]["momentum"] = 0.5
        return f(randn(4, 3)), values_of(model)

    return step


@program
def called_with_other_parameters(wrap: Wrap) -> Step:
    model = nn.Linear(3, 1)

    def call(x, weight):
        return torch.func.functional_call(model, {"weight": weight}, (x,))

    f = wrap(torch.no_grad()(call))

    def step(i):
        if i == 5:
            model.bias = nn.Parameter(torch.full((1,), 9.0))
        return f(randn(2, 3), randn(1, 3))

    return step


@program
def copied_inside(wrap: Wrap) -> Step:
    model = nn.Linear(3, 1)

    def call(x):
        other = copy.deepcopy(model)
        other.weight.data.mul_(2)
        return other(x)

    f = wrap(torch.no_grad()(call))

    def step(i):
        with torch.no_grad():
            model.weight.add_(0.1)
        return f(randn(2, 3))

    return step


@program
def of_other_types(wrap: Wrap) -> Step:
    model = nn.Linear(3, 3)
    f = wrap(torch.no_grad()(lambda x: model(x)))

    def step(i):
        dtype = torch.float64 if 3 <= i < 6 else torch.float32
        model.to(dtype)
        return f(randn(2, 3, dtype=dtype))

    return step
