# SPDX-License-Identifier: Apache-2.0
"""Training under autocast, with a GradScaler and in half precision; random numbers in it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import check
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import hostjit


def train(wrap: Callable[[nn.Module], Any], autocast: bool, scale: bool) -> list[Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4))
    run = wrap(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=scale)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y = run(torch.randn(5, 8))
        assert y.dtype == (torch.bfloat16 if autocast else torch.float32)
        scaler.scale(y.float().square().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return [parameter.detach() for parameter in module.parameters()]


def compile_with(runtime: str) -> Callable[[nn.Module], Any]:
    return lambda module: hostjit.compile(module, runtime=runtime)


def test_dropout_draws_the_numbers_of_eager(runtime: str) -> None:
    found = train(compile_with(runtime), autocast=False, scale=False)
    torch.testing.assert_close(found, train(lambda module: module, False, False))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_draws_its_numbers_once(reentrant: bool, runtime: str) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh())

    def function(x: Tensor) -> Tensor:
        result: Tensor = checkpoint(module, x, use_reentrant=reentrant).square()
        return result

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    for rows in (3, 4, 5):
        found, expected = [], []
        x = torch.randn(rows, 8, requires_grad=True)
        for run, results in (compiled, found), (function, expected):
            torch.manual_seed(rows)
            y = run(x)
            after = torch.get_rng_state()
            torch.manual_seed(0)
            module.zero_grad()
            x.grad = None
            y.sum().backward()
            results += [y, after, x.grad, *(parameter.grad for parameter in module.parameters())]
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_updates_statistics_as_eager_does(
    reentrant: bool, autocast: bool, runtime: str
) -> None:
    """Again when it recomputes; AOTAutograd, under every backend, does not."""
    modules = [nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8))]
    modules += [copy.deepcopy(modules[0]) for _ in range(3)]

    def function(module: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            result: Tensor = checkpoint(module, x, use_reentrant=reentrant)
        return result.float().square()

    def without(module: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            return module(x).float().square()  # type: ignore[no-any-return]

    calls = [
        hostjit.compile(function, runtime=runtime, fallback=False),
        torch.compile(function, backend="aot_eager"),
        without,
        function,
    ]
    for _ in range(2):
        x = torch.randn(4, 6)
        for module, call in zip(modules, calls, strict=True):
            module.zero_grad()
            call(module, x.clone().requires_grad_()).sum().backward()
    norms: list[Any] = [module[1] for module in modules]
    assert [int(norm.num_batches_tracked) for norm in norms] == [4, 2, 2, 4]
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(
            getattr(norms[0], name), getattr(norms[3], name), rtol=2e-2, atol=2e-2
        )
    for ours, eager in zip(modules[0].parameters(), modules[3].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, eager.grad, rtol=2e-2, atol=2e-2)


def test_autocast_and_a_scaler(runtime: str) -> None:
    found = train(compile_with(runtime), autocast=True, scale=True)
    expected = train(lambda module: module, True, True)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_autocast_inside(runtime: str) -> None:
    module = nn.Linear(8, 4)

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(x)

    x = torch.randn(3, 8)
    y = hostjit.compile(function, runtime=runtime)(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    found = module.weight.grad
    module.zero_grad()
    function(x).float().sum().backward()
    torch.testing.assert_close(found, module.weight.grad, rtol=2e-2, atol=2e-2)


def test_batch_norm_learns_its_statistics(runtime: str) -> None:
    modules = [nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).double()]
    modules.append(copy.deepcopy(modules[0]))
    fast = hostjit.compile(modules[0], runtime=runtime)
    for _ in range(3):
        x = torch.randn(4, 2, 5, 5, dtype=torch.float64)
        for run in (fast, modules[1]):
            run(x).square().sum().backward()
    torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict())
    for ours, eager in zip(modules[0].parameters(), modules[1].parameters(), strict=True):
        torch.testing.assert_close(ours.grad, eager.grad)
    modules[0].eval()
    torch.testing.assert_close(fast(x), modules[1].eval()(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "module",
    [
        nn.BatchNorm2d(3),
        nn.BatchNorm2d(3, affine=False),
        nn.BatchNorm2d(3, track_running_stats=False),
        nn.InstanceNorm2d(3, affine=True),
        nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        nn.GroupNorm(3, 3),
        nn.LayerNorm(5),
    ],
    ids=str,
)
def test_norms_of_half_precision_with_parameters_of_float32(
    module: nn.Module, training: bool, dtype: torch.dtype, runtime: str
) -> None:
    call = (module.train(training), torch.randn(4, 3, 5, 5, dtype=dtype, requires_grad=True))
    check(lambda module, x: module(x), call, runtime=runtime, compile=hostjit.compile)
    check(lambda module, x: module(x), call, runtime=runtime)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
def test_bags_of_half_precision(
    mode: str, padding: int | None, dtype: torch.dtype, runtime: str
) -> None:
    indices = torch.tensor([[1, 2, 3], [4, 5, 6]])

    def bags(weight: Tensor) -> Tensor:
        return nn.functional.embedding_bag(indices, weight, mode=mode, padding_idx=padding)

    call = (torch.randn(10, 4, dtype=dtype, requires_grad=True),)
    check(bags, call, runtime=runtime, compile=hostjit.compile)
    check(bags, call, runtime=runtime)
