# SPDX-License-Identifier: Apache-2.0
"""Hooks of modules, and those that the code adds to the graph of its own call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook", "ignore:Using a non-full")

Gradients = tuple[Tensor | None, ...]


class Model:
    """A model in two parts; `hook` is called with what is between them, at each step."""

    def __init__(self, hook: Callable[[Tensor], Any] = lambda hidden: None) -> None:
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.3))
        self.last = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        self.modules = nn.ModuleList([self.first, self.last])
        self.hook = hook

    def step(self, x: Tensor) -> Any:
        self.modules.zero_grad()
        hidden = self.first(x)
        found = self.hook(hidden)
        loss = self.last(hidden).square().mean()
        loss.backward()
        return loss.detach(), found

    def gradients(self) -> list[Tensor | None]:
        return [parameter.grad for parameter in self.modules.parameters()]


def doubled(gradients: Gradients) -> Gradients:
    return tuple(None if gradient is None else gradient * 2 for gradient in gradients)


def compare(models: tuple[Model, Model], recordings: int | None = 1, calls: int = 6) -> None:
    """Train both; `recordings`: how many there have to be, None where a step runs eagerly."""
    fast = hostjit.capture(models[0].step)
    for number in range(calls):
        found = []
        for step, model in zip((fast, models[1].step), models, strict=True):
            torch.manual_seed(number)
            found.append((step(torch.randn(5, 3)), model.gradients(), torch.get_rng_state()))
        assert_close(*found)
    if recordings is None:
        assert fast.captured is None
    else:
        assert fast.captured is not None
        assert len(fast.specializations) == recordings


def full(model: Model) -> None:
    model.last[0].register_full_backward_hook(lambda module, inputs, outputs: doubled(inputs))
    model.last.register_full_backward_hook(lambda module, inputs, outputs: None)


def full_pre(model: Model) -> None:
    model.last[0].register_full_backward_pre_hook(lambda module, outputs: doubled(outputs))
    model.first[0].register_full_backward_pre_hook(lambda module, outputs: doubled(outputs))


def both(model: Model) -> None:
    full(model)
    full_pre(model)


def of_old_kind(model: Model) -> None:
    model.last[0].register_backward_hook(lambda module, inputs, outputs: doubled(inputs))


def drawing(model: Model) -> None:
    model.last.register_full_backward_pre_hook(
        lambda module, outputs: (outputs[0] * torch.rand(()),)
    )


@pytest.mark.parametrize("add", [full, full_pre, both, of_old_kind, drawing])
def test_hooks_of_modules(add: Callable[[Model], None]) -> None:
    models = Model(), Model()
    for model in models:
        add(model)
    compare(models)


def test_a_hook_of_all_modules() -> None:
    handle = nn.modules.module.register_module_full_backward_hook(
        lambda module, inputs, outputs: doubled(inputs) if isinstance(module, nn.Tanh) else None
    )
    try:
        compare((Model(), Model()))
    finally:
        handle.remove()


def of_the_tensor(hidden: Tensor) -> None:
    hidden.register_hook(lambda gradient: gradient * 3)


def removed(hidden: Tensor) -> None:
    hidden.register_hook(lambda gradient: gradient * 5).remove()
    hidden.register_hook(lambda gradient: gradient + 1)


def that_keeps_gradients(hidden: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    hidden.register_hook(found.append)
    return found


def of_several_tensors(hidden: Tensor) -> list[Any]:
    found: list[Any] = []
    register_multi_grad_hook((hidden,), lambda gradients: found.append(gradients[0]))
    return found


def of_the_node(hidden: Tensor) -> None:
    node = hidden.grad_fn
    assert node is not None
    node.register_hook(lambda inputs, outputs: doubled(inputs))
    node.register_prehook(lambda outputs: doubled(outputs))  # type: ignore[attr-defined]
    assert node.name()


def that_draws(hidden: Tensor) -> None:
    hidden.register_hook(lambda gradient: gradient * torch.rand_like(gradient))


def of_a_new_leaf(hidden: Tensor) -> Tensor | None:
    leaf = hidden.detach().requires_grad_()

    def double(tensor: Tensor) -> None:
        assert tensor.grad is not None
        tensor.grad.mul_(2)

    leaf.register_post_accumulate_grad_hook(double)
    leaf.square().sum().backward()
    return leaf.grad


_HOOKS = [
    *(of_the_tensor, removed, that_keeps_gradients, of_several_tensors, of_the_node, that_draws),
    of_a_new_leaf,
]


@pytest.mark.parametrize("hook", _HOOKS)
def test_hooks_that_a_call_adds_to_its_graph(hook: Callable[[Tensor], Any]) -> None:
    compare((Model(hook), Model(hook)))


def test_a_hook_that_reads_a_gradient() -> None:
    def hook(hidden: Tensor) -> None:
        hidden.register_hook(lambda found: found * (2 if found[0, 0] > found[1, 0] else 3))

    compare((Model(hook), Model(hook)), recordings=2)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_hook_that_counts_runs_eagerly() -> None:
    models = []
    for _ in range(2):
        count = [0]

        def hook(hidden: Tensor, count: list[int] = count) -> None:
            def scale(gradient: Tensor) -> Tensor:
                count[0] += 1
                return gradient * count[0]

            hidden.register_hook(scale)

        models.append(Model(hook))
    compare((models[0], models[1]), recordings=None)


def on_a_parameter(model: Model, x: Tensor) -> None:
    model.first[0].weight.register_hook(lambda gradient: gradient * 2)


def on_a_parameter_and_off(model: Model, x: Tensor) -> Any:
    return model.first[0].weight.register_hook(lambda gradient: gradient * 2)


def where_a_gradient_is_accumulated(model: Model, x: Tensor) -> Any:
    weight = model.first[0].weight
    node: Any = weight.view_as(weight).grad_fn
    return node.next_functions[0][0].register_hook(lambda inputs, outputs: None)


def on_an_argument(model: Model, x: Tensor) -> None:
    x.register_hook(lambda gradient: gradient * 2)


def on_an_argument_and_off(model: Model, x: Tensor) -> Any:
    return x.register_hook(lambda gradient: gradient * 2)


def after_accumulation_and_off(model: Model, x: Tensor) -> Any:
    def double(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(2)

    return model.last[0].weight.register_post_accumulate_grad_hook(double)


def after_the_node_of_an_argument(model: Model, x: Tensor) -> None:
    if x.grad_fn is None:
        x.register_hook(lambda gradient: gradient * 2)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    ("add", "is_recorded"),
    [
        (on_a_parameter, False),
        (on_a_parameter_and_off, True),
        (where_a_gradient_is_accumulated, False),
        (on_an_argument, False),
        (on_an_argument_and_off, True),
        (after_accumulation_and_off, True),
        (after_the_node_of_an_argument, False),
    ],
)
def test_hooks_on_what_was_there_before(
    add: Callable[[Model, Tensor], Any], is_recorded: bool
) -> None:
    """They have to be gone when the call ends, for a replay adds none."""
    models = [Model() for _ in range(2)]

    def step(model: Model, x: Tensor) -> Any:
        handle = add(model, x)
        loss = model.step(x)
        if handle is not None:
            handle.remove()
        return loss

    fast = hostjit.capture(lambda x: step(models[0], x))
    for number in range(5):
        found = []
        for run, model in ((fast, models[0]), (lambda x: step(models[1], x), models[1])):
            torch.manual_seed(number)
            x = torch.randn(5, 3, requires_grad=True)
            found.append((run(x), x.grad, model.gradients()))
        assert_close(*found)
    assert (fast.captured is not None) == is_recorded


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("hook", [of_the_tensor, of_the_node])
def test_hooks_of_a_graph_that_is_returned_run_eagerly(hook: Callable[[Tensor], Any]) -> None:
    model = Model()

    def call(x: Tensor) -> Tensor:
        hidden = model.first[:2](x)
        hook(hidden)
        return model.last(hidden)

    fast = hostjit.capture(call)
    for _ in range(4):
        x = torch.randn(5, 3)
        gradients = []
        for run in (fast, call):
            model.modules.zero_grad()
            run(x).sum().backward()
            gradients.append(model.gradients())
        assert_close(*gradients)
    assert fast.captured is None
