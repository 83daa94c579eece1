# SPDX-License-Identifier: Apache-2.0
"""Hooks of modules that the compiled code registers, removes or looks at."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs (in parts|eagerly)")

WAYS = {"compile": hostjit.compile, "torch": lambda f: torch.compile(f, backend="hostjit")}


@pytest.fixture(params=WAYS)
def compiled(request: pytest.FixtureRequest) -> Callable[..., Any]:
    torch._dynamo.reset()
    way: Callable[..., Any] = WAYS[request.param]
    return way


def doubled(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output * 2


def shifted(module: nn.Module, args: Any) -> Any:
    return (args[0] + 1,)


def scaled(module: nn.Module, of_inputs: Any, of_outputs: Any) -> Any:
    return (of_inputs[0] * 3,)


def registered_on_new_module(module: nn.Module, x: Tensor) -> Tensor:
    new = nn.Linear(3, 3)
    new.register_forward_hook(lambda m, a, o: o * 0 + 1)
    return new(x)


def registered_on_new_module_without_parameters(module: nn.Module, x: Tensor) -> Tensor:
    new = nn.ReLU()
    new.register_forward_hook(doubled)
    return new(x)


def registered(module: nn.Module, x: Tensor) -> Tensor:
    module.register_forward_hook(doubled)
    return module(x) + 1


def registered_first(module: nn.Module, x: Tensor) -> Tensor:
    module.register_forward_hook(doubled)
    module.register_forward_hook(lambda m, a, o: o + 1, prepend=True, with_kwargs=False)
    return module(x * 2)


def registered_before(module: nn.Module, x: Tensor) -> Tensor:
    module.register_forward_pre_hook(shifted)
    return module(x)


def registered_and_removed(module: nn.Module, x: Tensor) -> Tensor:
    handle = module.register_forward_hook(doubled)
    y = module(x)
    handle.remove()
    return y + module(x)


def registered_in_a_context(module: nn.Module, x: Tensor) -> Tensor:
    with module.register_forward_hook(doubled):
        y = module(x)
    return y * module(x)


def set_in_the_dict(module: nn.Module, x: Tensor) -> Tensor:
    y = x * 2
    module._forward_hooks[7] = doubled
    return module(y)


def set_by_the_dict_of_the_module(module: nn.Module, x: Tensor) -> Tensor:
    module.__dict__["_forward_hooks"][7] = doubled
    return module(x)


def counted(module: nn.Module, x: Tensor) -> Tensor:
    return module(x) * (1 + len(module._forward_hooks)) + (7 in module._forward_hooks)


CASES = [
    registered_on_new_module,
    registered_on_new_module_without_parameters,
    registered,
    registered_first,
    registered_before,
    registered_and_removed,
    registered_in_a_context,
    set_in_the_dict,
    set_by_the_dict_of_the_module,
    counted,
]


@pytest.mark.parametrize("function", CASES)
def test_hooks_are_eagers(compiled: Callable[..., Any], function: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    state = nn.Linear(3, 3).state_dict()
    modules = [nn.Linear(3, 3), nn.Linear(3, 3)]
    fast = compiled(function)
    for module in modules:
        module.load_state_dict(state)
    for _ in range(2):
        x = torch.randn(2, 3)
        expected, found = function(modules[0], x), fast(modules[1], x)
        torch.testing.assert_close(found, expected)
        for name in ("_forward_hooks", "_forward_pre_hooks"):
            hooks = [getattr(module, name) for module in modules]
            assert type(hooks[1]) is collections.OrderedDict
            assert len(hooks[0]) == len(hooks[1])


def test_a_handle_from_outside_is_removed(compiled: Callable[..., Any]) -> None:
    def remove(handle: Any, module: nn.Module, x: Tensor) -> Tensor:
        y = module(x)
        handle.remove()
        return y + 3 * module(x)

    module = nn.Linear(3, 3)
    x = torch.ones(3)
    expected = remove(module.register_forward_hook(doubled), module, x)
    found = compiled(remove)(module.register_forward_hook(doubled), module, x)
    torch.testing.assert_close(found, expected)
    assert not module._forward_hooks


def test_other_hooks_under_a_key(compiled: Callable[..., Any]) -> None:
    fast = compiled(counted)
    module = nn.Linear(3, 3)
    x = torch.ones(3)
    for key in (7, 8, 7):
        module._forward_hooks.clear()
        module._forward_hooks[key] = doubled
        torch.testing.assert_close(fast(module, x), counted(module, x))


def test_backward_hooks(compiled: Callable[..., Any]) -> None:
    def f(module: nn.Module, x: Tensor) -> Tensor:
        handle = module.register_full_backward_hook(scaled)
        y: Tensor = module(x)
        handle.remove()
        return y

    module = nn.Linear(3, 3)
    gradients = []
    for way in (f, compiled(f)):
        x = torch.ones(2, 3, requires_grad=True)
        way(module, x).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_spectral_norm(compiled: Callable[..., Any]) -> None:
    def f(module: nn.Module, x: Tensor) -> Tensor:
        torch.manual_seed(3)
        y: Tensor = nn.utils.spectral_norm(module)(x)
        nn.utils.remove_spectral_norm(module)
        return y

    torch.manual_seed(0)
    module, x = nn.Linear(3, 3), torch.ones(2, 3)
    before = module.weight.detach().clone()
    expected = f(module, x)
    with torch.no_grad():
        module.weight.copy_(before)
    torch.testing.assert_close(compiled(f)(module, x), expected)


def test_spectral_norm_is_removed(compiled: Callable[..., Any]) -> None:
    fast = compiled(nn.utils.remove_spectral_norm)
    for _ in range(2):
        module = nn.utils.spectral_norm(nn.Linear(3, 3))
        fast(module)
        assert not module._forward_pre_hooks


@pytest.mark.filterwarnings("ignore:hostjit")
def test_hooks_of_all_modules_see_the_users_alone() -> None:
    """Registered in mid-run, of a step of training that is recorded again then."""
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    seen: list[str] = []

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = hostjit.compile(step)
    for _ in range(4):
        fast(torch.rand(3, 4))
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(type(module).__name__)
    )
    try:
        for _ in range(4):
            fast(torch.rand(3, 4))
            assert seen == ["Linear", "ReLU", "Sequential"]
            seen.clear()
    finally:
        handle.remove()


def test_a_call_alone_is_whole() -> None:
    module = nn.Linear(3, 3)
    module.register_forward_hook(doubled)
    fast = hostjit.compile(lambda x: module(x) + 1, fallback=False)
    x = torch.ones(3)
    torch.testing.assert_close(fast(x), module(x) + 1)
