# SPDX-License-Identifier: Apache-2.0
"""Programs about graphs of autograd that reach into a call from outside, or out of it."""

from __future__ import annotations

import torch
from program_list import Programs, Step, Wrap
from torch import nn

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
# Gradients flow through writes of what others have, backward passes go on into graphs of others, or
# a gradient is found in two places.
RUN_EAGERLY = frozenset(
    {
        *(
            "gradient_of_a_weight_behind_an_argument",
            "backward_of_a_view",
            "gradient_kept_in_a_list",
        ),
        *("tensor_gets_a_graph", "graph_outside_is_written", "view_of_a_graph_is_written"),
    }
)
program = PROGRAMS.register
randn = torch.randn


def gradient_of(tensor):
    return torch.zeros(2) if tensor.grad is None else tensor.grad.clone()


@program
def results_of_results(wrap: Wrap) -> Step:
    first, second = randn(2, requires_grad=True), randn(2, requires_grad=True)
    f = wrap(lambda x: (x * second).sum())

    def step(i):
        first.grad = second.grad = None
        f(first * (i + 1) if i % 3 else randn(2, requires_grad=True)).backward()
        return gradient_of(first), gradient_of(second)

    return step


@program
def gradients_of_leaves_and_results(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)
    f = wrap(lambda x: torch.autograd.grad((x**3).sum(), x)[0])
    return lambda i: f(weight * i if i % 3 == 2 else randn(2, requires_grad=True))


@program
def gradient_of_a_weight_behind_an_argument(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)
    f = wrap(lambda x: torch.autograd.grad((x**2).sum(), weight)[0])
    return lambda i: f(weight * (i + 1))


@program
def backward_of_a_view(wrap: Wrap) -> Step:
    weight = randn(4, requires_grad=True)

    def g(x):
        (x * x).sum().backward()
        return x.detach() * 2

    f = wrap(g)

    def step(i):
        weight.grad = None
        return f(weight[:2] if i > 4 else weight[2:]), weight.grad.clone()

    return step


@program
def one_gradient_of_two(wrap: Wrap) -> Step:
    first, second = randn(2, requires_grad=True), randn(2, requires_grad=True)

    def g(x):
        ((first + 2 * second) * x).sum().backward()
        return x + 1

    f = wrap(g)

    def step(i):
        if i == 4:
            first.grad = second.grad
        if i == 6:
            first.grad = second.grad.clone()
        return f(randn(2)), first.grad.clone(), second.grad.clone()

    return step


@program
def gradient_kept_in_a_list(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)
    weight.grad = torch.ones(2)
    kept = [weight.grad]

    def g(x):
        (weight * x).sum().backward()
        return x * kept[0]

    f = wrap(g)

    def step(i):
        if i == 5:
            weight.grad = torch.full((2,), 3.0)
        return f(randn(2)), kept[0].clone(), weight.grad.clone()

    return step


@program
def written_with_and_without_a_graph(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)
    f = wrap(lambda x: x.mul_(2))

    def step(i):
        weight.grad = None
        y = f(weight * 1 if i % 2 else randn(2))
        if y.requires_grad:
            y.sum().backward()
        return y.detach(), gradient_of(weight)

    return step


@program
def tensor_gets_a_graph(wrap: Wrap) -> Step:
    weight, kept = randn(2, requires_grad=True), torch.zeros(2)

    def g(x):
        kept.add_(weight * x)
        return x + 1

    f = wrap(g)

    def step(i):
        y = f(randn(2))
        gradient = torch.autograd.grad(kept.sum(), weight)[0]
        kept.detach_()
        return y, gradient, kept.clone()

    return step


@program
def graph_outside_is_written(wrap: Wrap) -> Step:
    weight = randn(2, requires_grad=True)
    kept = weight * 1

    def g(x):
        kept.mul_(2)
        return x + 1

    f = wrap(g)
    return lambda i: (f(randn(2)), torch.autograd.grad(kept.sum(), weight, retain_graph=True)[0])


@program
def view_of_a_graph_is_written(wrap: Wrap) -> Step:
    weight = randn(4, requires_grad=True)
    kept = weight * 1

    def g(x):
        kept[:2].mul_(2)
        return x + 1

    f = wrap(g)
    return lambda i: (f(randn(2)), torch.autograd.grad(kept.sum(), weight, retain_graph=True)[0])


@program
def leaf_that_gets_a_graph(wrap: Wrap) -> Step:
    weight, kept = randn(2, requires_grad=True), randn(2, requires_grad=True)

    def g(x):
        (x * kept).sum().backward()
        return x + 1

    f = wrap(g)

    def step(i):
        weight.grad = None
        if i == 5:
            kept.requires_grad_(False)
            kept.copy_(weight + 1)
        if i == 6:
            kept.detach_().requires_grad_()
        return f(randn(2)), gradient_of(weight)

    return step


@program
def hook_of_a_node(wrap: Wrap) -> Step:
    weight, hooks = randn(2, requires_grad=True), []
    node = torch.autograd.graph.get_gradient_edge(weight).node

    def g(x):
        (weight * x).sum().backward()
        return x + 1

    f = wrap(g)

    def step(i):
        weight.grad = None
        if i == 4:
            hooks.append(node.register_prehook(lambda gradients: (gradients[0] * 2,)))
        if i == 7:
            hooks[0].remove()
        return f(randn(2)), weight.grad.clone()

    return step


@program
def hook_of_a_node_of_an_argument(wrap: Wrap) -> Step:
    weight, hooks = randn(2, requires_grad=True), []
    node = torch.autograd.graph.get_gradient_edge(weight).node

    def g(x):
        (x * 3).sum().backward()
        return x.detach() + 1

    f = wrap(g)

    def step(i):
        weight.grad = None
        if i == 4:
            hooks.append(node.register_prehook(lambda gradients: (gradients[0] * 2,)))
        if i == 7:
            hooks[0].remove()
        return f(weight), weight.grad.clone()

    return step


@program
def adversaries(wrap: Wrap) -> Step:
    maker, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    of_maker = torch.optim.Adam(maker.parameters(), 0.01)
    of_judge = torch.optim.Adam(judge.parameters(), 0.01)

    def judged(x, z):
        of_judge.zero_grad()
        loss = judge(x).mean() - judge(maker(z).detach()).mean()
        loss.backward()
        of_judge.step()
        return loss.detach()

    def made(z):
        of_maker.zero_grad()
        loss = judge(maker(z)).mean()
        loss.backward()
        of_maker.step()
        return loss.detach()

    first, second = wrap(judged), wrap(made)

    def step(i):
        judge.requires_grad_(True)
        losses = [first(randn(3, 2), randn(3, 2))]
        judge.requires_grad_(False)
        losses.append(second(randn(3, 2)))
        return losses, judge.weight.detach().clone(), maker.weight.detach().clone()

    return step
