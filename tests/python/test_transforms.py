# SPDX-License-Identifier: Apache-2.0
"""`torch.func` transforms around compiled functions and inside of them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

import hostjit
from hostjit.capturing.thread_state import thread_state_kept


@pytest.fixture(autouse=True, params=[True, False], ids=["grad", "no_grad"])
def _grad_mode(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.manual_seed(0)
    with torch.set_grad_enabled(request.param):
        yield


def row_loss(x: Tensor) -> Tensor:
    return (x.sin() * 2).sum()


def rows(x: Tensor) -> Tensor:
    return torch.tanh(x @ torch.ones(3, 2)) * x.shape[-1]


def per_sample_gradients(x: Tensor) -> Any:
    weights = {"weight": torch.eye(3), "bias": torch.ones(3)}
    layer = torch.nn.Linear(3, 3)

    def loss(weights: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(layer, weights, (row,)).square().sum()

    return vmap(grad(loss), in_dims=(None, 0))(weights, x)


INSIDE: dict[str, Callable[[Tensor], Any]] = {
    "vmap": lambda x: vmap(lambda row: row * row.sum())(x),
    "vmap of columns": lambda x: vmap(torch.dot, in_dims=1)(x, x.flip(0)),
    "grad": lambda x: grad(row_loss)(x),
    "vmap of grad": lambda x: vmap(grad(row_loss))(x),
    "vjp": lambda x: vjp(rows, x)[1](torch.ones(4, 2)),
    "jvp": lambda x: jvp(rows, (x,), (torch.ones_like(x),)),
    "jacrev": lambda x: jacrev(row_loss)(x),
    "jacfwd": lambda x: jacfwd(rows)(x),
    "hessian": lambda x: hessian(row_loss)(x[0]),
    "jacrev with numbers": lambda x: jacrev(lambda y: torch.stack([y[0] * 0.05, y[1] / 3]))(x[0]),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", INSIDE)
def test_inside(name: str, runtime: str) -> None:
    function = INSIDE[name]
    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    for _ in range(2):
        x = torch.randn(4, 3)
        assert_close(fast(x), function(x))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_gradients_of_each_sample() -> None:
    x = torch.randn(4, 3)
    assert_close(hostjit.compile(per_sample_gradients)(x), per_sample_gradients(x))


@pytest.mark.parametrize("transform", [vmap, jacrev, jacfwd, lambda f: vmap(jacrev(f))])
def test_around(transform: Callable[..., Any]) -> None:
    fast = hostjit.compile(rows)
    x = torch.randn(4, 3)
    assert_close(fast(x), rows(x))
    assert_close(transform(fast)(x), transform(rows)(x))
    assert_close(fast(x), rows(x))


def test_derivatives_around() -> None:
    fast = hostjit.compile(rows)
    x = torch.randn(4, 3)
    assert_close(grad(lambda x: fast(x).sum())(x), grad(lambda x: rows(x).sum())(x))
    assert_close(jvp(fast, (x,), (x,)), jvp(rows, (x,), (x,)))
    assert_close(vjp(fast, x)[1](torch.ones(4, 2)), vjp(rows, x)[1](torch.ones(4, 2)))


def _begin_transforms() -> None:
    """Begin as a graph does, that runs the statements of transforms and none of their `finally`."""
    functorch: Any = torch._C._functorch
    functorch._vmap_increment_nesting(3, "error")
    torch._C._autograd._saved_tensors_hooks_disable("not now")
    functorch._grad_increment_nesting()
    functorch._jvp_increment_nesting()
    forward_ad.enter_dual_level()
    raise ValueError("in the middle")


def test_failure_inside() -> None:
    """What raises in the middle of a trace leaves no transform under way."""
    with pytest.raises(ValueError, match="in the middle"), thread_state_kept():
        _begin_transforms()
    assert torch._C._functorch.maybe_current_level() is None
    x = torch.randn(4, 3)
    assert_close(vmap(grad(row_loss))(x), x.cos() * 2)
    assert_close(jvp(torch.sin, (x,), (x,)), (x.sin(), x.cos() * x))
    with torch.autograd.graph.save_on_cpu():
        pass


class _Square(torch.autograd.Function):
    """Has another derivative than its forward has, and twice the value under `vmap`."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:  # type: ignore[override]
        return x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return 3 * gradient * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:  # type: ignore[override]
        return 5 * tangent * ctx.saved_tensors[0]

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor) -> Any:  # type: ignore[override]
        return 2 * _Square.apply(x), dims[0]


def _squares(x: Tensor) -> Tensor:
    return cast(Tensor, _Square.apply(x.sin())).sum()


def _in_eager_code(x: Tensor) -> Tensor:
    with torch.no_grad():
        return vmap(_squares)(x)


def _to_torch(function: Callable[..., Any]) -> Any:
    return torch.compile(function, backend="hostjit")


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile", [hostjit.compile, _to_torch, hostjit.capture])
@pytest.mark.parametrize(
    "function",
    [
        grad(_squares),
        vmap(_squares),
        vmap(grad(_squares)),
        jacrev(_squares),
        jacfwd(_squares),
        lambda x: vjp(_squares, x)[1](torch.ones(()))[0],
        lambda x: jvp(_squares, (x,), (x,))[1],
        lambda x: grad(lambda y: grad(_squares)(y).sum())(x),
        _in_eager_code,
    ],
    ids=lambda function: getattr(function, "__name__", None),
)
def test_functions_with_derivatives_of_their_own(
    function: Callable[[Tensor], Tensor], compile: Callable[..., Any]
) -> None:
    def doubled(x: Tensor) -> Tensor:
        return function(x) * 2

    torch._dynamo.reset()
    fast = compile(doubled)
    for _ in range(3):
        x = torch.randn(4, 3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        found, expected = fast(twin), doubled(x)
        assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
        if expected.requires_grad:
            found.sum().backward()
            expected.sum().backward()
            assert_close(twin.grad, x.grad)


def _derivatives(layers: torch.nn.Module, x: Tensor) -> dict[str, Callable[[], Tensor]]:
    """What is made of derivatives of a network, of which weights are learned."""

    def value(row: Tensor) -> Tensor:
        return cast(Tensor, layers(row)).squeeze(-1)

    return {
        "hessian": lambda: vmap(hessian(value))(x)[:, 1, 1],
        "slope": lambda: jvp(value, (x,), (torch.ones_like(x),))[1],
        "forward": lambda: vmap(jacfwd(value))(x),
        "both": lambda: jvp(grad(lambda z: value(z).sum()), (x,), (torch.ones_like(x),))[1],
    }


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("compile", [hostjit.compile, _to_torch, hostjit.capture])
@pytest.mark.parametrize("name", ["hessian", "slope", "forward", "both"])
def test_weights_learned_through_derivatives(
    name: str, compile: Callable[..., Any], runtime: str
) -> None:
    """A gradient of zeros, of which forward derivatives make a tensor without memory, is memory."""
    layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def function(x: Tensor) -> Tensor:
        return _derivatives(layers, x)[name]()

    fast = compile(function)
    with hostjit.runtime(runtime):
        for _ in range(3):
            x = torch.randn(3, 2)
            found, expected = fast(x), function(x)
            assert_close(found, expected)
            if expected.requires_grad:
                weights = list(layers.parameters())
                of_found = torch.autograd.grad(found.square().sum(), weights, allow_unused=True)
                of_expected = torch.autograd.grad(
                    expected.square().sum(), weights, allow_unused=True
                )
                assert_close(of_found, of_expected)
                # The last bias has none of a derivative.
                assert [g is None for g in of_found] == [g is None for g in of_expected]


def test_recorded_forward_derivative() -> None:
    """What forward derivatives ask of sizes is no reason to run eagerly."""
    layer = torch.nn.Linear(3, 2)
    fast = hostjit.capture(lambda x: jvp(layer, (x,), (torch.ones_like(x),)), fallback=False)
    for _ in range(3):
        x = torch.randn(4, 3)
        assert_close(fast(x), jvp(layer, (x,), (torch.ones_like(x),)))
    assert fast.captured is not None


@torch.enable_grad()
def test_recorded_step_of_a_physics_informed_network() -> None:
    """Zeros of forward derivatives are multiplied by numbers, of which the sizes are asked for."""

    def make(compile: Callable[..., Any]) -> tuple[torch.nn.Module, Callable[..., Any]]:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.Adam(layers.parameters(), lr=1e-2)

        def step(x: Tensor) -> Tensor:
            laplacian = vmap(lambda row: hessian(lambda z: layers(z)[0])(row).diagonal().sum())(x)
            loss = (laplacian - x.sum(1)).square().mean() + layers(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return layers, compile(step)

    recorded, fast = make(lambda step: hostjit.capture(step, fallback=False))
    plain, step = make(lambda step: step)
    for _ in range(4):
        x = torch.randn(4, 2)
        assert_close(fast(x), step(x))
    assert fast.captured is not None
    for found, expected in zip(recorded.parameters(), plain.parameters(), strict=True):
        assert_close(found, expected)


def _hessians_behind_a_break() -> None:
    class Sine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(1.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(self.weight * x)

    model, losses = Sine(), []

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        losses.append(loss.item())
        return torch.func.vmap(torch.func.hessian(lambda row: model(row).sum()))(x)

    fast = hostjit.compile(step)
    torch.manual_seed(0)
    for _ in range(5):
        x = torch.randn(4, 2)
        with torch.enable_grad():
            expected, found = step(x), fast(x)
        assert_close(found, expected)
        assert losses[-1] == pytest.approx(losses[-2])


@pytest.mark.filterwarnings("ignore:hostjit")
def test_frames_within_transforms_are_left_to_python() -> None:
    """What a transform calls was compiled as frames, and left the thread without autograd.

    That could be later, when the last reference to an error of the trace had gone.
    """
    keys = str(torch._C._dispatch_tls_local_exclude_set())
    _hessians_behind_a_break()
    gc.collect()
    assert str(torch._C._dispatch_tls_local_exclude_set()) == keys
