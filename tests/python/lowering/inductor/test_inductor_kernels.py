# SPDX-License-Identifier: Apache-2.0
"""`kernels="inductor"`: the same results as eager's, in both runtimes, from Inductor's kernels."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config

import hostjit

RUNTIMES = ("jit", "evaluator")


@pytest.fixture(autouse=True)
def _no_fallback() -> Iterator[None]:
    """Make a program with other kernels, or none, an error."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="hostjit:")
        yield


def check(function: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """Compare results, strides and the generator with eager's; returns the Host IR."""
    for runtime in RUNTIMES:
        fast = hostjit.compile(function, kernels="inductor", runtime=runtime, **options)
        with torch.no_grad():
            torch.manual_seed(1)
            found = fast(*arguments)
            drawn = torch.rand(1)
            torch.manual_seed(1)
            expected = function(*arguments)
        torch.testing.assert_close(found, expected, check_stride=True)
        assert torch.equal(drawn, torch.rand(1))
    return fast.host_ir()


def test_pointwise_operators_are_one_kernel_of_inductors() -> None:
    text = check(lambda a, b: torch.relu(a + b) * b - a, torch.randn(4, 9), torch.randn(4, 1))
    assert text.count("launch_kernel") == 1
    assert "shared_library" in text


def test_a_net_has_products_of_the_math_library_between_kernels() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    text = check(net, torch.randn(3, 8))
    assert "addmm(" in text
    assert "aten_call" not in text
    # The kernel writes where the product did.
    assert "in_out=[%0]" in text


def test_a_convolutional_net() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    check(net.eval(), torch.randn(2, 3, 8, 8))


@torch.no_grad()
def test_views_of_inputs_and_of_each_other_stay_views() -> None:
    def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return x.t(), y, y.t()[1:], (x + 1).clone()

    fast = hostjit.compile(views, kernels="inductor")
    x = torch.randn(3, 8)
    transposed, y, part, clone = fast(x)
    assert transposed.data_ptr() == x.data_ptr()
    assert part.data_ptr() == y.data_ptr() + y.element_size()
    assert clone.data_ptr() != y.data_ptr()
    torch.testing.assert_close((transposed, y, part, clone), views(x), check_stride=True)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.total.add_(x.sum(0))
        x.mul_(2)
        return self.total * 2, x[1:]


@pytest.mark.parametrize("runtime", RUNTIMES)
@torch.no_grad()
def test_writes_of_inputs_and_buffers(runtime: str) -> None:
    eager, module = Counter(), Counter()
    fast = hostjit.compile(module, kernels="inductor", runtime=runtime)
    x = torch.randn(4, 3)
    written, expected = x.clone(), x.clone()
    for _ in range(2):
        torch.testing.assert_close(fast(written), eager(expected))
        torch.testing.assert_close(written, expected)
        torch.testing.assert_close(module.total, eager.total)
    assert fast(written)[1].data_ptr() == written[1:].data_ptr()


def test_random_numbers_are_eagers() -> None:
    def draw(p: torch.Tensor) -> torch.Tensor:
        dropped = nn.functional.dropout(p, 0.5)
        return torch.bernoulli(p) + torch.rand_like(p) + torch.randint(0, 5, (4, 3)) + dropped

    check(draw, torch.rand(4, 3))


def test_random_numbers_are_drawn_in_eagers_order() -> None:
    def draw(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # What takes the second becomes part of a kernel that comes before the first.
        doubled = x * 2
        first, second = torch.rand(4, 3), torch.rand(4, 3)
        return doubled, doubled.sin() + second, first * 3, torch.rand(4) - torch.rand(4)

    check(draw, torch.randn(4, 3))


def test_operators_that_inductor_leaves_to_pytorch_are_aten_calls() -> None:
    def several(x: torch.Tensor, index: torch.Tensor) -> Any:
        ordered = torch.sort(x, 0)
        put = x.index_put((index,), x[:2] * 2, accumulate=True)
        reduced = x[0].scatter_reduce(0, index, x[1, :2], "amax")
        return ordered, put, reduced, torch.linalg.inv(x @ x.t() + torch.eye(3))

    text = check(several, torch.randn(3, 4), torch.tensor([2, 0]))
    assert "aten::sort" in text
    assert "launch_kernel" in text


def test_parts_of_a_result_are_written_where_they_belong() -> None:
    check(
        lambda a, b, c: torch.cat([a @ b, c.relu()], 1), *map(torch.ones, [(4, 5), (5, 6), (4, 3)])
    )


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_errors_of_kernels(runtime: str) -> None:
    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return hostjit.compile(function, kernels="inductor", runtime=runtime)

    ints = torch.tensor([1, 0])
    if torch.__version__ >= "2.12":  # kernels of Inductor in 2.11 divide by anything
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            compiled(lambda a, b: a // b)(ints, ints)
    with pytest.raises(IndexError, match="index out of bounds"):
        compiled(lambda a, i: a[i] * 2)(torch.randn(3), torch.tensor([1, 7]))


def test_one_program_for_all_sizes() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.t(), -1).reshape(-1)

    fast = hostjit.compile(attend, kernels="inductor", dynamic=True)
    for size in (3, 5, 64):
        x = torch.randn(size, 8)
        torch.testing.assert_close(fast(x), attend(x))
    assert len(fast.specializations) == 1
    assert "scalars=[%s" in fast.host_ir()


@pytest.mark.parametrize("dynamic", [False, True])
def test_training(dynamic: bool) -> None:
    eager = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
    module = copy.deepcopy(eager)
    fast = hostjit.compile(module, kernels="inductor", dynamic=dynamic)
    for size in (5, 7) if dynamic else (5, 5):
        x = torch.randn(size, 8)
        eager(x).square().sum().backward()
        fast(x).square().sum().backward()
        for found, expected in zip(module.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(found.grad, expected.grad)
    torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))
    assert "shared_library" in fast.host_ir()


def test_the_backend_of_torch_compile_has_the_option() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * 3

    fast = torch.compile(function, backend="hostjit", options={"kernels": "inductor"})
    x = torch.randn(5, requires_grad=True)
    fast(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.cos(x) * 3)


def test_torch_compile_beside_it_is_inductors_own() -> None:
    before = config.get_config_copy()
    check(lambda x: x.exp() + 1, torch.randn(6))
    assert config.get_config_copy() == before


def test_what_has_no_host_ir_falls_back_to_hostjits_kernels() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    fast = hostjit.compile(branch, kernels="inductor")
    x = torch.randn(4)
    with pytest.warns(UserWarning, match="hostjit's kernels, not Inductor's: .*control flow, cond"):
        torch.testing.assert_close(fast(x), branch(x))


def test_unknown_kernels_are_an_error() -> None:
    expected = "unknown choice of kernels 'triton', expected 'hostjit' or 'inductor'"
    with pytest.raises(hostjit.Error, match=expected):
        hostjit.compile(torch.sin, kernels="triton")
    with pytest.raises(Exception, match=expected):
        torch.compile(torch.sin, backend="hostjit", options={"kernels": "triton"})(torch.ones(2))


def test_the_rest_of_a_call_has_inductors_kernels_too() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) * 2.0
        torch._dynamo.graph_break()
        return torch.relu(y - 1.0) * 3.0

    fast = hostjit.compile(call, kernels="inductor")
    x = torch.randn(4, 9)
    with pytest.warns(UserWarning, match="graph break"), torch.no_grad():
        torch.testing.assert_close(fast(x), call(x))
    (rest,) = fast.owner._parts._functions.values()
    assert "shared_library" in rest.host_ir()
