# SPDX-License-Identifier: Apache-2.0
"""What one can do with the graph that a compiled call leaves: hooks, retained graphs, errors."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from ways_to_differentiate import COMPILERS, in_each_way

import hostjit


def leaf(*sizes: int) -> Tensor:
    return torch.randn(*sizes, requires_grad=True)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def test_a_retained_graph(runtime: str) -> None:
    x = leaf(3)
    y = hostjit.compile(lambda x: x.sin(), runtime=runtime)(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def test_several_calls_before_the_backward_passes(runtime: str) -> None:
    module = network()
    fast = hostjit.compile(module, runtime=runtime)
    batches = [torch.randn(2, 4) for _ in range(3)]
    losses = [fast(x).square().sum() for x in batches]
    for loss in reversed(losses):
        loss.backward()
    found = [parameter.grad for parameter in module.parameters()]
    module.zero_grad()
    for x in batches:
        module(x).square().sum().backward()
    torch.testing.assert_close(found, [parameter.grad for parameter in module.parameters()])


@pytest.mark.parametrize("target", ["result", "parameter", "input"])
def test_writes_before_the_backward_pass(target: str, runtime: str) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = leaf(2, 4)
    between = x * 1
    y = hostjit.compile(module, runtime=runtime)(between)
    with torch.no_grad():
        {"result": y, "parameter": module[0].weight, "input": between}[target].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks(runtime: str) -> None:
    module = network()
    seen: list[Any] = []
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad is not None))
    y = hostjit.compile(module, runtime=runtime)(leaf(2, 4))
    y.retain_grad()
    y.register_hook(lambda gradient: gradient * 3)
    y.sum().backward()
    assert seen == [True] * 4
    assert torch.equal(y.grad, torch.full_like(y, 3.0))
    found = [parameter.grad for parameter in module.parameters()]
    torch.testing.assert_close(found[-1], torch.full((3,), 6.0))


@pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")
@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_backward_hooks_of_modules(inner: bool, of_input: bool, runtime: str) -> None:
    module = network()
    x = leaf(2, 4)
    parameters = list(module.parameters())

    def gradients(run: Any) -> Any:
        gradients = torch.autograd.grad(run(x).square().sum(), [x, *parameters])
        return gradients, [seen.pop(0) for _ in range(len(seen))]

    seen: list[Tensor] = []
    target = module[1] if inner else module
    if of_input:

        def after(_: nn.Module, into: Any, out: Any) -> Any:
            seen.extend((*into, *out))
            return (into[0] * 2,)

        target.register_full_backward_hook(after)
    else:
        target.register_full_backward_pre_hook(
            lambda _, out: (seen.append(out[0]), (out[0] * 3,))[1]
        )
    expected = gradients(module)
    assert expected[1]
    fast = hostjit.compile(module, runtime=runtime)
    for _ in range(3):
        torch.testing.assert_close(gradients(fast), expected)


@pytest.mark.filterwarnings("ignore:hostjit.*runs in parts")
@pytest.mark.parametrize("of_all_modules", [True, False])
def test_backward_hooks_that_come_and_go(of_all_modules: bool, runtime: str) -> None:
    model = network()
    fast = hostjit.compile(model, runtime=runtime)
    x = leaf(2, 4)
    of_all = nn.modules.module
    after, before = (
        (
            of_all.register_module_full_backward_hook,
            of_all.register_module_full_backward_pre_hook,
        )
        if of_all_modules
        else (model[0].register_full_backward_hook, model[0].register_full_backward_pre_hook)
    )

    def gradients(run: Any) -> Any:
        return torch.autograd.grad(run(x).square().sum(), [x, *model.parameters()])

    plain = gradients(model)
    torch.testing.assert_close(gradients(fast), plain)
    for register, hook in (
        (after, lambda _, into, out: tuple(g if g is None else g * 2 for g in into)),
        (before, lambda _, out: (out[0] * 3,)),
    ):
        handle = register(hook)
        expected = gradients(model)
        assert not torch.equal(expected[0], plain[0])
        torch.testing.assert_close(gradients(fast), expected)
        handle.remove()
        torch.testing.assert_close(gradients(fast), plain)


def test_hooks_on_saved_tensors(runtime: str) -> None:
    fast = hostjit.compile(lambda x: x.sin() * 2, runtime=runtime)
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor.double()

    for _ in range(2):
        x = leaf(3)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.float()):
            y = fast(x)
        y.sum().backward()
        torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert len(packed) == 2
    with torch.autograd.graph.save_on_cpu():
        fast(leaf(3)).sum().backward()


def test_a_checkpoint_around(runtime: str) -> None:
    fast = hostjit.compile(lambda x: x.sin().tanh(), runtime=runtime)
    gradients = []
    for function in (fast, fast, lambda x: x.sin().tanh()):
        x = torch.arange(3.0).requires_grad_()
        torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[0], gradients[2])
    torch.testing.assert_close(gradients[1], gradients[2])


def test_results_without_an_incoming_gradient(runtime: str) -> None:
    x = leaf(3)
    _, b = hostjit.compile(lambda x: (x.sin(), x.cos()), runtime=runtime)(x)
    (gradient,) = torch.autograd.grad(b.sum(), x)
    torch.testing.assert_close(gradient, -x.detach().sin())


def test_gradients_of_some_inputs(runtime: str) -> None:
    x, y = leaf(3), leaf(3)
    z = hostjit.compile(lambda x, y: x * y, runtime=runtime)(x, y)
    (gradient,) = torch.autograd.grad(z.sum(), y)
    assert torch.equal(gradient, x.detach())
    assert x.grad is None


def test_gradients_do_not_share_memory(runtime: str) -> None:
    x, y = leaf(3), leaf(3)
    z = hostjit.compile(lambda x, y: x + y.view(3), runtime=runtime)(x, y)
    incoming = torch.ones(3)
    z.backward(incoming)
    assert x.grad is not None and y.grad is not None
    assert len({t.data_ptr() for t in (x.grad, y.grad, incoming)}) == 3


def test_a_backward_pass_in_another_thread(runtime: str) -> None:
    fast = hostjit.compile(network(), runtime=runtime)
    x = torch.randn(2, 4)
    fast(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in fast.parameters()]
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                gradients = torch.autograd.grad(fast(x).sum(), list(fast.parameters()))
                torch.testing.assert_close(list(gradients), expected)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    y = fast(x).sum()
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    torch.testing.assert_close(next(iter(fast.parameters())).grad, 2 * expected[0])


def test_what_is_saved_is_released(runtime: str) -> None:
    fast = hostjit.compile(lambda x: x.tanh().sin(), runtime=runtime)
    fast(leaf(3))
    for do_backward in (True, False):
        x = leaf(3)
        y = fast(x)
        if do_backward:
            y.sum().backward()
        dead = weakref.ref(x)
        del x, y
        gc.collect()
        assert dead() is None


@pytest.mark.parametrize("order", [2, 3])
def test_higher_derivatives(order: int, runtime: str) -> None:
    module = nn.Sequential(nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 1))

    def derivative(function: Any) -> Tensor:
        x = torch.linspace(-1, 1, 5).reshape(5, 1).requires_grad_()
        y = function(x)
        for _ in range(order):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (gradient,) = torch.autograd.grad(y.sum(), module[0].weight)
        return gradient

    found = derivative(hostjit.compile(module, runtime=runtime))
    torch.testing.assert_close(found, derivative(module))


def test_many_gradients_at_once(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        return (x.sin() * x).cumsum(0)

    fast, x = hostjit.compile(function, runtime=runtime), leaf(3)
    for create_graph in (False, True):
        found = []
        for run in (fast, function):
            (rows,) = torch.autograd.grad(
                run(x), x, torch.eye(3), is_grads_batched=True, create_graph=create_graph
            )
            assert rows.requires_grad == create_graph
            found.append(rows)
        torch.testing.assert_close(found[0], found[1])
    jacobian = torch.autograd.functional.jacobian(fast, x, vectorize=True)
    torch.testing.assert_close(jacobian, torch.autograd.functional.jacobian(function, x))


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4).double()
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.norm(x).tanh()  # type: ignore[no-any-return]


@in_each_way
@pytest.mark.parametrize("is_called_again", [False, True])
def test_second_derivatives_where_statistics_are_updated(way: str, is_called_again: bool) -> None:
    def train(compile: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        module = _Counting()
        run = compile(module)
        found: list[Any] = []
        for number in range(4):
            x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
            module.zero_grad()
            y = run(x)
            if is_called_again and number > 1:
                found.append(run(x.detach() * 2))
            (gradient,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
            (y.sum() + gradient.square().sum()).backward()
            found += [y, gradient, x.grad, *(p.grad for p in module.parameters())]
            found += [buffer.clone() for buffer in module.buffers()]
        return found

    torch.testing.assert_close(train(COMPILERS[way]), train(lambda module: module))


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale.clone())
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.saved_tensors[0], None


@in_each_way
def test_gradients_that_depend_on_what_was_written(way: str) -> None:
    found = []
    for compile in (COMPILERS[way], lambda function: function):
        scale = torch.ones(3, dtype=torch.float64)

        def function(x: Tensor, scale: Tensor = scale) -> Tensor:
            y = _Scaled.apply(x, scale)
            scale.add_(1)
            return y  # type: ignore[no-any-return]

        run = compile(function)
        for number in range(4):
            x = leaf(3)
            (gradient,) = torch.autograd.grad(run(x).sum(), x, create_graph=number % 2 == 1)
            found.append(gradient)
    torch.testing.assert_close(found[:4], found[4:])


@pytest.mark.parametrize("backend", [False, True])
def test_second_derivatives_where_results_depend_on_what_was_written(backend: bool) -> None:
    def function(x: Tensor, state: Tensor) -> Tensor:
        result = x.sin() * state.clone()
        state.add_(1)
        return result

    fast = torch.compile(function, backend="hostjit") if backend else hostjit.compile(function)
    for _ in range(3):
        x = leaf(3)
        (gradient,) = torch.autograd.grad(fast(x, torch.ones(3)).sum(), x, create_graph=True)
        torch.testing.assert_close(gradient, x.cos())
        (second,) = torch.autograd.grad(gradient.sum() + x.sum() * 0, x)
        torch.testing.assert_close(second, -x.sin())


def test_an_error_in_the_backward_pass(runtime: str) -> None:
    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:1]):
        y = hostjit.compile(lambda x: x.sin(), runtime=runtime)(x)
    with pytest.raises(RuntimeError, match=r"saved for backward is a Float tensor of sizes \[1\]"):
        y.sum().backward()


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_with_elements_in_common(compile: Any, dynamic: bool, runtime: str) -> None:
    """What arrives for one has elements of its own, and so do the zeros where nothing arrives."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin().expand(2, *x.shape), x.cos().unfold(0, 2, 1)

    fast = compile(function, runtime=runtime)
    for number in range(4):
        x = leaf(4 + number if dynamic else 4)
        expected_x = x.detach().clone().requires_grad_()
        for results in (fast(x), function(expected_x)):
            chosen = results[:2] if number % 2 else results[number // 2 :][:1]
            sum((y * torch.arange(y.numel()).reshape(y.shape)).sum() for y in chosen).backward()
        torch.testing.assert_close(x.grad, expected_x.grad)
