# SPDX-License-Identifier: Apache-2.0
"""Modules that calls bring: one program for all that have the same in them, and what tells them."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs (in parts|eagerly)|keeps meeting)")


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(0.0)
        self.scale, self.count = 2.0, 3

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(torch.relu(self.a(x)))
        return self.b(hidden) * self.scale + self.count


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.a(x))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.layers = nn.ModuleList([self.a, nn.ReLU(), self.a])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.a(x)


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        if self.last is not None:
            y = y + self.last
        self.last = y.detach()
        return y


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.calls = nn.Linear(6, 6), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.a(x) * self.calls


class Averages(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0))
        return self.a(x) + self.mean


class Replaces(Averages):
    def forward(self, x: Tensor) -> Tensor:
        self.mean = self.mean * 0.9 + x.detach().mean(0)
        return self.a(x) + self.mean


class InLists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unregistered = [nn.Linear(6, 6)]
        self.a = self.unregistered[0]
        self.scales = {"x": torch.full((6,), 0.5)}

    def forward(self, x: Tensor) -> Tensor:
        return self.unregistered[0](x) * self.scales["x"]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.GRU(6, 6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.a(x[None])[0][0]
        return outputs


OUTSIDE = nn.Linear(6, 6)


def call(module: Any, x: Tensor) -> Any:
    return module(x)


def call_twice(module: Any, x: Tensor) -> Any:
    return module(x) - module(x * 2)


def with_one_outside(module: Any, x: Tensor) -> Any:
    return OUTSIDE(module(x))


def sum_parameters(module: Any, x: Tensor) -> Any:
    return x.sum() + sum((value**2).sum() for value in module.parameters())


def sum_biases(module: Any, x: Tensor) -> Any:
    total = x.sum()
    for name, value in module.named_parameters():
        if "bias" in name:
            total = total + value.sum()
    return total


def ask_for_mode(module: Any, x: Tensor) -> Any:
    return module(x) if module.training else module(x) * 10


def ask_for_attribute(module: Any, x: Tensor) -> Any:
    return module(x) + getattr(module, "extra", 5.0)


def describe(module: Any, x: Tensor) -> Any:
    return module(x), str(module), len(module.__dict__), module._non_persistent_buffers_set


def save(module: Any, x: Tensor) -> Any:
    return module(x), list(module.state_dict())


def call_with_copies(module: Any, x: Tensor) -> Any:
    if module.a is module.b:  # of which functional_call leaves the copies in place
        return module(x)
    copies = {name: value * 1.5 for name, value in module.named_parameters()}
    return torch.func.functional_call(module, copies, (x,))


def decay(module: Any, x: Tensor) -> Any:
    with torch.no_grad():
        for value in module.parameters():
            value.mul_(0.9)
    return module(x)


def switch_mode(module: Any, x: Tensor) -> Any:
    module.eval()
    y = module(x)
    module.train()
    return y


@torch.enable_grad()
def train(module: Any, x: Tensor) -> Any:
    module.zero_grad()
    loss = module(x + OUTSIDE.bias).square().mean()
    loss.backward()
    return loss.detach()


def change(module: Any, number: int, shared: nn.Module) -> None:
    """Make a module another one than those of lower numbers."""
    is_plain = isinstance(module, Plain)
    if number == 4:
        module.eval()
    elif number == 5:
        module.a.register_forward_hook(lambda *given: given[-1] * 3)
    elif number == 6:
        module.requires_grad_(False)
    elif number == 7:
        module.extra = 2.5
    elif number == 8 and is_plain:
        module.scale = 3.5
    elif number == 9 and is_plain:
        module.a = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    elif number == 10 and is_plain:
        module.b = module.a
    elif number == 11 and is_plain:
        module.a, module.b = nn.Linear(6, 6), nn.Linear(6, 6)
        module.b.weight = module.a.weight
    elif number == 12 and is_plain:
        module.drop = nn.Dropout(1.0)
    elif number == 13 and is_plain:
        module.a.bias = None
    elif number == 14 and is_plain:
        module.a.forward = torch.sin
    elif number == 15 and is_plain:
        module.a = shared
    elif number == 16 and is_plain:
        module.register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    elif number == 17 and is_plain:
        module.a.register_full_backward_hook(lambda module, into, out: None)


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


def make_modules(make: Callable[[], nn.Module]) -> list[nn.Module]:
    torch.manual_seed(0)
    modules, shared = [make() for _ in range(18)], nn.Linear(6, 6)
    for number, module in enumerate(modules):
        change(module, number, shared)
    return modules


def state_of(module: nn.Module) -> Any:
    plain = (bool, int, float, Tensor, type(None))
    fields = {name: value for name, value in vars(module).items() if isinstance(value, plain)}
    gradients = [value.grad for value in module.parameters()]
    items = (*fields.items(), *module.state_dict().items())
    return *items, *gradients


@pytest.mark.parametrize("gradients", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize(
    ("make", "function"),
    [
        *((kind, call) for kind in (Plain, Normed, Tied, Shared, Remembers, Counts, Averages)),
        *((kind, call) for kind in (Replaces, InLists, Recurrent)),
        *((Plain, function) for function in (call_twice, with_one_outside, sum_parameters)),
        *((Plain, function) for function in (sum_biases, ask_for_mode, ask_for_attribute)),
        *((Plain, function) for function in (describe, save, call_with_copies, decay)),
        *((Plain, function) for function in (switch_mode, train)),
    ],
    ids=lambda value: value.__name__,
)
def test_many_modules(
    make: Callable[[], nn.Module], function: Callable[..., Any], gradients: bool
) -> None:
    modules = make_modules(make)
    twins = copy.deepcopy(modules)
    fast = hostjit.compile(function, fallback=True)
    with torch.set_grad_enabled(gradients):
        for _ in range(2):
            for number, (module, twin) in enumerate(zip(modules, twins, strict=True)):
                x = torch.randn(4, 6)
                torch.manual_seed(number)
                found = fast(module, x)
                torch.manual_seed(number)
                expected = function(twin, x)
                assert_same(found, expected)
                if isinstance(expected, Tensor) and expected.requires_grad:
                    found.square().mean().backward()
                    expected.square().mean().backward()
                assert_same(state_of(module), state_of(twin))


def test_the_third_module_makes_one_program_for_all() -> None:
    fast = hostjit.compile(call, fallback=False)
    x = torch.randn(4, 6)
    for _ in range(2):
        for module in [Plain() for _ in range(12)]:
            torch.testing.assert_close(fast(module, x), module(x))
    assert len(fast.specializations) == 3


def test_layers_of_a_class_share_a_program() -> None:
    class Layer(Plain):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index, self.name = index, f"layer{index}"

        @hostjit.compile(fallback=False)
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    torch.manual_seed(0)
    model = nn.Sequential(*(Layer(index) for index in range(12)))
    x = torch.randn(4, 6)
    expected = x
    for layer in model:
        expected = Plain.forward(layer, expected)
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(model(x), expected)
    assert len(Layer.forward.specializations) == 3


def test_a_pair_of_modules_that_are_one() -> None:
    def distance(first: nn.Module, second: nn.Module, x: Tensor) -> Tensor:
        return (first(x) - second(x)).square().mean() + (1.0 if first is second else 0.0)

    fast = hostjit.compile(distance, fallback=True)
    modules = [Plain() for _ in range(6)]
    x = torch.randn(4, 6)
    for _ in range(2):
        for first in modules:
            for second in modules:
                expected = distance(first, second, x)
                torch.testing.assert_close(fast(first, second, x), expected)


def test_a_module_that_is_also_found_outside() -> None:
    modules = [Plain() for _ in range(6)]

    def blend(module: nn.Module, x: Tensor) -> Tensor:
        y = module(x)
        return y * 2 if module is modules[0] else y + modules[0](x)

    fast = hostjit.compile(blend, fallback=True)
    x = torch.randn(4, 6)
    for _ in range(2):
        for module in modules:
            torch.testing.assert_close(fast(module, x), blend(module, x))


def test_modules_change_while_one_program_answers_for_them() -> None:
    modules = [Plain() for _ in range(6)]
    fast = hostjit.compile(call, fallback=True)
    x = torch.randn(4, 6)
    for module in modules:
        fast(module, x)
    for number in range(4, 18):
        change(modules[5], number, OUTSIDE)
        change(modules[4], number, OUTSIDE)
        torch.testing.assert_close(fast(modules[5], x), modules[5](x))
        torch.testing.assert_close(fast(modules[4], x), modules[4](x))


def test_a_method_of_their_class_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [Plain() for _ in range(6)]
    fast = hostjit.compile(call, fallback=True)
    x = torch.randn(4, 6)
    for module in modules:
        fast(module, x)
    monkeypatch.setattr(Plain, "forward", lambda self, x: self.a(x) - 1)
    for module in modules:
        torch.testing.assert_close(fast(module, x), module.a(x) - 1)


def test_modules_in_themselves_have_programs_of_their_own() -> None:
    class Knows(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.around = [self]

    fast = hostjit.compile(call, fallback=True)
    x = torch.randn(4, 6)
    for module in [Knows() for _ in range(5)]:
        torch.testing.assert_close(fast(module, x), module(x))


class Linked:
    def __init__(self) -> None:
        self.scale = torch.rand(6)
        self.around: tuple[Any, ...] = ()


@pytest.mark.parametrize("make", [Plain, Linked])
def test_one_that_is_in_itself_among_others(make: Callable[[], Any]) -> None:
    def scale(value: Any, x: Tensor) -> Any:
        return value(x) if isinstance(value, nn.Module) else x * value.scale

    fast = hostjit.compile(scale, fallback=True)
    x = torch.randn(4, 6)
    for number in range(8):
        value = make()
        value.around = () if number < 5 else ([value],) if make is Plain else (value,)
        torch.testing.assert_close(fast(value, x), scale(value, x))


@pytest.mark.parametrize("make", [Plain, Linked])
def test_one_with_an_attribute_that_no_code_can_name(make: Callable[[], Any]) -> None:
    fast = hostjit.compile(lambda value, x: x * 2, fallback=True)
    x = torch.randn(6)
    for number in range(8):
        value = make()
        if number >= 5:
            value.__dict__[5] = 1
        torch.testing.assert_close(fast(value, x), x * 2)


def test_modules_that_are_gone_stay_in_no_program() -> None:
    fast = hostjit.compile(call, fallback=False)
    x = torch.randn(4, 6)
    references = []
    for _ in range(6):
        module = Plain()
        fast(module, x)
        references.append(weakref.ref(module))
    del module
    gc.collect()
    assert [reference() is None for reference in references[3:]] == [True] * 3


@pytest.mark.parametrize("make", [Remembers, Counts, Replaces])
def test_modules_that_a_call_changes_share_a_program(make: Callable[[], nn.Module]) -> None:
    fast = hostjit.compile(call, fallback=False)
    x = torch.randn(4, 6)
    torch.manual_seed(0)
    modules = [make() for _ in range(8)]
    twins = copy.deepcopy(modules)
    with torch.no_grad():
        for _ in range(3):
            for module, twin in zip(modules, twins, strict=True):
                torch.testing.assert_close(fast(module, x), twin(x))
                assert_same(state_of(module), state_of(twin))
    assert len(fast.specializations) <= 6
