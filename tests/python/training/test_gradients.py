# SPDX-License-Identifier: Apache-2.0
"""Gradients of modules and functions that hostjit.compile compiled, beside eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import check
from no_warnings import no_warnings
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import hostjit


def leaf(*sizes: int) -> Tensor:
    return torch.randn(*sizes, requires_grad=True)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x, x, x, need_weights=False)[0]
        return result


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.inner(x)[0]
        return result


MODULES = [
    (nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), leaf(2, 4)),
    (nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Dropout(0.5)), leaf(2, 4)),
    (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 8, 8)),
    (nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 2)), torch.randint(10, (3, 5))),
    (nn.GroupNorm(2, 4), leaf(2, 4, 6)),
    (nn.RMSNorm(6), leaf(3, 6)),
    (Attention(), leaf(2, 3, 8)),
    (Recurrent(), leaf(2, 3, 4)),
    (Recurrent(), torch.randn(2, 3, 4)),
    (nn.LSTM(4, 5, num_layers=2, bidirectional=True), torch.randn(3, 2, 4)),
    (nn.GRU(4, 5), torch.randn(3, 2, 4)),
    (nn.MaxPool2d(2), leaf(1, 2, 6, 6)),
]


@pytest.mark.parametrize("call", MODULES, ids=lambda call: type(call[0]).__name__)
def test_modules(call: tuple[nn.Module, Tensor], runtime: str) -> None:
    check(lambda module, x: module(x), call, call, runtime=runtime, compile=hostjit.compile)


def detaches(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.sin()
    return y, y.detach() * 2


def selects_integers(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sort(dim=1)


def returns_inputs(x: Tensor) -> dict[str, Any]:
    return {"x": x, "y": x * 2, "n": 3, "none": None}


def returns_views(x: Tensor) -> tuple[Tensor, ...]:
    return x.t(), x[1:], x.detach(), x * 2


def returns_shared_memory(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y[0]


def returns_the_same_twice(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y = x.cos()
    return y, y, x.cos()


def ignores_some(x: Tensor, y: Tensor) -> Tensor:
    return x * 2 + y.detach()


def partly_without_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        y = x * 2
    return y, x * y


def expands(x: Tensor) -> Tensor:
    return x.sum()


def passes_gradients_on(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def writes_an_intermediate(x: Tensor) -> Tensor:
    y = x * 2
    y.mul_(x)
    return y.relu_()


def checkpoints(x: Tensor) -> Tensor:
    function = torch.utils.checkpoint.checkpoint
    result: Tensor = function(lambda y: y.sin().tanh(), x, use_reentrant=False)
    return result


def hooks_an_intermediate(x: Tensor) -> Tensor:
    y = x * 3
    y.register_hook(lambda gradient: gradient * 2)
    return y.sin()


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (detaches, 1),
        (selects_integers, 1),
        (returns_inputs, 1),
        (returns_views, 1),
        (returns_shared_memory, 1),
        (returns_the_same_twice, 1),
        (ignores_some, 2),
        (partly_without_gradients, 1),
        (expands, 1),
        (passes_gradients_on, 2),
        (writes_an_intermediate, 1),
        (checkpoints, 1),
        (F.dropout, 1),
        (F.softmax, 1),
    ],
)
def test_functions(function: Callable[..., Any], count: int, runtime: str) -> None:
    def call(*inputs: Tensor) -> Any:
        return function(*inputs, dim=1) if function is F.softmax else function(*inputs)

    inputs = tuple(leaf(3, 4) for _ in range(count))
    check(call, inputs, inputs, runtime=runtime, compile=hostjit.compile)


def test_a_hook_on_an_intermediate(runtime: str) -> None:
    call = (leaf(3, 4),)
    check(
        hooks_an_intermediate,
        call,
        call,
        runtime=runtime,
        compile=hostjit.compile,
        may_fall_back=True,
    )


def test_inputs_that_are_no_leaves_and_not_contiguous(runtime: str) -> None:
    weight = leaf(4, 5)

    def gradients(function: Callable[..., Any]) -> Any:
        x = torch.arange(12.0).reshape(4, 3).requires_grad_()
        y = function((x * 2).t(), weight)
        return torch.autograd.grad(y.t(), (x, weight), torch.ones(5, 3))

    def function(x: Tensor, weight: Tensor) -> Tensor:
        return torch.tanh(x @ weight * 0.01)

    found = gradients(hostjit.compile(function, runtime=runtime))
    torch.testing.assert_close(found, gradients(function))


def test_the_node_runs_no_python(runtime: str) -> None:
    fast = hostjit.compile(lambda x: x.sin() * 2, runtime=runtime)
    y = fast(leaf(3))
    assert y.grad_fn is not None and y.grad_fn.name() == "HostjitBackward"
    assert fast.specializations[0].backward is not None


def test_writes_that_autograd_does_not_see(runtime: str) -> None:
    def function(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x.detach().sum())
        return x * total

    call = (leaf(3), torch.zeros(()))
    check(function, call, call, runtime=runtime, compile=hostjit.compile)


def test_a_tensor_that_is_no_leaf_where_warnings_are_errors() -> None:
    fast = hostjit.compile(lambda x: (x * 2).sum())
    x = leaf(3)
    with no_warnings():
        fast(x.sin()).backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


class DoubledInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


def doubles(x: Tensor) -> Tensor:
    result: Tensor = DoubledInPlace.apply(x)
    return result


DOUBLED: list[Callable[[Tensor], Tensor | None]] = [
    doubles,
    lambda x: doubles(x[1:]),
    lambda x: (doubles(x), None)[1],
]


@pytest.mark.parametrize("compile", [hostjit.compile, torch.compile])
@pytest.mark.parametrize("function", DOUBLED, ids=["returned", "view", "not returned"])
def test_a_function_that_changes_an_input_runs_eagerly(
    function: Callable[[Tensor], Tensor | None], compile: Callable[..., Any]
) -> None:
    def gradient(run: Callable[[Tensor], Tensor | None]) -> list[Any]:
        x = torch.ones(3, requires_grad=True)
        y = x * 1
        z = run(y)
        y.sum().backward()
        return [x.grad, y.detach(), z is y]

    arguments = {"backend": "hostjit"} if compile is torch.compile else {}
    with pytest.warns(UserWarning, match="runs eagerly: .* changes an input in place"):
        found = gradient(compile(function, **arguments))
    expected = gradient(function)
    torch.testing.assert_close(found[:2], expected[:2])
    assert found[2] == expected[2]


def test_a_function_that_changes_an_intermediate(runtime: str) -> None:
    check(lambda x: doubles(x * 3) * 1, (leaf(3),), runtime=runtime, compile=hostjit.compile)


def test_calls_that_change_python_objects(runtime: str) -> None:
    seen: list[Any] = []

    def function(x: Tensor) -> Tensor:
        y = x.sin()
        seen.append(y)
        return y * 2

    fast = hostjit.compile(function, runtime=runtime)
    x = leaf(3)
    for _ in range(2):
        fast(x).sum().backward()
    assert len(seen) == 2 and seen[0].requires_grad
    torch.testing.assert_close(x.grad, 4 * x.detach().cos())


def test_parameters_are_read_anew(runtime: str) -> None:
    module = nn.Linear(3, 2)
    fast = hostjit.compile(module, runtime=runtime)
    x = torch.randn(4, 3)
    for _ in range(2):
        fast(x).sum().backward()
        with torch.no_grad():
            module.weight.mul_(2)
        module.bias = nn.Parameter(torch.ones(2))
        torch.testing.assert_close(fast(x), module(x))
    module.weight.requires_grad_(False)
    module.weight.grad = None
    fast(x).sum().backward()
    assert module.weight.grad is None and module.bias.grad is not None


def test_without_gradients_the_inference_program_runs(runtime: str) -> None:
    module = nn.Linear(3, 2)
    fast = hostjit.compile(module, runtime=runtime)
    x = torch.randn(4, 3)
    for _ in range(2):
        assert fast(x).requires_grad
        with torch.no_grad():
            assert not fast(x).requires_grad
        torch.testing.assert_close(fast(x), module(x))
    assert len(fast.specializations) == 2


def test_a_view_that_needs_a_gradient_since_its_base_does(runtime: str) -> None:
    compiled = hostjit.compile(lambda x: x * 2, runtime=runtime)
    base = torch.zeros(4)
    view = base[1:]
    assert not compiled(view).requires_grad
    weight = torch.ones(4, requires_grad=True)
    base.add_(weight)
    result = compiled(view)
    assert result.requires_grad
    result.sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, torch.tensor([0.0, 2.0, 2.0, 2.0]))


def test_results_with_gradients_are_not_reused() -> None:
    fast = hostjit.compile(torch.tanh, reuse_outputs=True)
    x, y = leaf(3), leaf(3)
    first, second = fast(x), fast(y)
    assert first is not second
    (first * second).sum().backward()
    torch.testing.assert_close(x.grad, (1 - x.tanh() ** 2) * y.tanh())


def test_an_input_that_is_written_after_its_use(runtime: str) -> None:
    def function(x: Tensor, scale: Tensor) -> Tensor:
        y = x * scale.abs().neg()
        scale.mul_(2)
        return y

    def gradient(function: Callable[..., Any]) -> list[Tensor]:
        x, scale = torch.ones(3, requires_grad=True), torch.full((3,), 3.0)
        function(x, scale).sum().backward()
        assert x.grad is not None
        return [x.grad, scale]

    fast = hostjit.compile(function, runtime=runtime)
    torch.testing.assert_close(gradient(fast), gradient(function))


def test_what_eager_refuses_in_the_backward_pass(runtime: str) -> None:
    def function(x: Tensor, scale: Tensor) -> Tensor:
        y = x * scale
        scale.mul_(2)
        return y

    y = hostjit.compile(function, runtime=runtime)(leaf(3), torch.ones(3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_results_that_eager_conjugates_lazily_stay_lazy() -> None:
    x = leaf(8)
    fast = hostjit.compile(torch.fft.ihfft)
    with pytest.warns(UserWarning, match="runs eagerly"):
        found = fast(x)
    assert found.is_conj()
    torch.testing.assert_close(found, torch.fft.ihfft(x))


def test_gradients_of_what_nothing_arrives_for_are_none() -> None:
    first, second = nn.Linear(3, 2), nn.Linear(3, 2)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        a, b = first(x), second(x)
        return a, b, a * b

    fast = hostjit.compile(function)
    x = torch.randn(4, 3)
    parameters = [*first.parameters(), *second.parameters()]
    for results in ([0], [1], [2], [0, 1], [0, 2]):
        gradients = []
        for call in (function, fast):
            for parameter in parameters:
                parameter.grad = None
            found = call(x)
            sum(found[index].sum() for index in results).backward()
            gradients.append([parameter.grad for parameter in parameters])
        assert_close(gradients[1], gradients[0])


def test_a_state_that_is_no_part_of_the_loss(runtime: str) -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(3, 3)
            self.mean = torch.zeros(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x)
            self.mean = 0.9 * self.mean + 0.1 * y.mean(0)
            return y.pow(2).sum()

    ours, eager = Running(), Running()
    fast = hostjit.compile(ours, runtime=runtime)
    for number in range(4):
        x = torch.full((2, 3), number + 1.0)
        fast(x).backward()
        eager(x).backward()
        assert_close(ours.linear.weight.grad, eager.linear.weight.grad)
        assert_close(ours.mean, eager.mean)
