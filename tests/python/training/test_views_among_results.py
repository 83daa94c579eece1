# SPDX-License-Identifier: Apache-2.0
"""Results that are views of inputs, or of one another where sizes are open: as in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import hostjit

WEIGHT = nn.Parameter(torch.linspace(-1, 1, 240, dtype=torch.float64).view(6, 40))

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "part of an input": lambda x: x[: x.shape[0] // 2],
    "an input and a view": lambda x: (x, x.t(), x.view(-1)),
    "beside a result": lambda x: (x[1:, ::2], x.sin()),
    "a view of a view": lambda x: x.t()[2:].unsqueeze(0),
    "of a parameter": lambda x: (x @ WEIGHT, WEIGHT.t(), WEIGHT[:, : x.shape[0] // 2]),
    "of a result": lambda x: ((y := x.sin()), y[: y.shape[0] // 4]),
    "of no result": lambda x: {"a": (y := x.sin())[1:], "b": y[:-1], "c": y.t()[0]},
    "of a product": lambda x: ((y := x @ WEIGHT).flatten()[3:], y.view(-1, 1, 40)),
    "of several": lambda x: (y := x.cos(), *y.chunk(2, 1)),
    "an empty one": lambda x: ((y := x.sin()), y[y.shape[0] :]),
    "of both": lambda x: ((y := x.exp()), y[2:], x[2:], x.shape[0] - 2),
}
SIZES = (8, 12, 5, 20, 9, 31, 6, 16, 7, 10)


@pytest.fixture(params=["gradients of an input", "gradients of none", "no gradients"])
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with torch.set_grad_enabled(request.param != "no gradients"):
        yield request.param


def facts(results: Any, known: list[Any]) -> list[Any]:
    """What two results have to have in common."""
    tensors = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
    everything = [*known, *tensors]
    return [
        (
            (t.shape, t.stride(), t.storage_offset(), t.requires_grad, t.is_leaf),
            [t.untyped_storage()._cdata == other.untyped_storage()._cdata for other in everything],
            [t is other for other in everything],
            t.requires_grad and [t._base is other for other in known],
        )
        for t in tensors
    ]


def gradients(results: Any, wanted: list[Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]
    total = sum(((i + 1) * t).square().sum() for i, t in enumerate(tensors) if t.requires_grad)
    if not isinstance(total, Tensor) or total.grad_fn is None:
        return []
    return torch.autograd.grad(total, wanted, allow_unused=True)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager_by_one_program(name: str, kind: str, runtime: str) -> None:
    function = FUNCTIONS[name]
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    torch.manual_seed(0)
    for n in SIZES:
        x = torch.randn(n, 6, dtype=torch.float64, requires_grad=kind != "gradients of none")
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found, expected)
        assert facts(found, [x, WEIGHT]) == facts(expected, [x, WEIGHT])
        wanted = [tensor for tensor in (x, WEIGHT) if tensor.requires_grad]
        torch.testing.assert_close(gradients(found, wanted), gradients(expected, wanted))
    assert len(compiled.specializations) == 2


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_a_view_is_written_later(runtime: str) -> None:
    """Autograd follows the write to what it is a view of, and to the other views."""

    def function(x: Tensor, n: int) -> Any:
        y = x * 2
        return y, y[:n], x[n:], y[1:]

    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    for n in range(2, 9):
        outcomes = []
        leaf = torch.linspace(0, 1, 6 * n).view(-1, 2).requires_grad_()
        weight = torch.tensor(1.5, requires_grad=True)
        for call in (compiled, function):
            x = leaf * 1
            y, part, tail, rest = call(x, n)
            part.mul_(weight)
            tail.add_(weight)
            total = y.sum() + rest.square().sum() + x.square().sum()
            outcomes.append((y, tail, *torch.autograd.grad(total, (leaf, weight))))
        torch.testing.assert_close(*outcomes)
    assert len(compiled.specializations) <= 2


def test_known_sizes_are_no_composition() -> None:
    """A call is one program, without Python code of AOTAutograd's."""
    function = FUNCTIONS["beside a result"]
    compiled = hostjit.compile(function, dynamic=False, fallback=False)
    x = torch.randn(5, 6, requires_grad=True)
    compiled(x)
    (made,) = compiled.specializations
    assert made.describe()["route"] is None


def test_views_that_python_code_returns() -> None:
    """What Dynamo's code makes goes the way that it went."""

    class Keeps(nn.Module):
        kept: Any = None

        def forward(self, x: Tensor) -> Tensor:
            self.kept = [x[1:]]
            return x.t()

    module = Keeps()
    compiled = hostjit.compile(module)
    x = torch.randn(4, 3, requires_grad=True)
    for _ in range(3):
        assert compiled(x)._base is x
        assert module.kept[0]._base is x
        torch.testing.assert_close(module.kept[0], x[1:])


def test_views_that_strides_do_not_tell() -> None:
    def function(x: Tensor) -> Any:
        return x.detach(), torch.view_as_real(x.to(torch.complex64)), x[1:]

    compiled = hostjit.compile(function)
    for n in (3, 4, 5):
        x = torch.randn(n, 3, requires_grad=True)
        found, expected = compiled(x), function(x)
        torch.testing.assert_close(found, expected)
        assert facts(found, [x]) == facts(expected, [x])


def test_elements_that_share_memory() -> None:
    """The gradient of such an input is the one of eager."""
    compiled = hostjit.compile(lambda x: (x[1:], x * 2), fallback=False)
    for rows in (4, 5, 6):
        for x in (torch.ones(3).expand(rows, 3), torch.arange(8.0).unfold(0, 3, 1)):
            leaf = x.detach().requires_grad_()
            found, expected = compiled(leaf), (leaf[1:], leaf * 2)
            torch.testing.assert_close(gradients(found, [leaf]), gradients(expected, [leaf]))


def test_another_parameter_in_its_place() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))

        def forward(self, x: Tensor) -> Any:
            return x @ self.weight, self.weight.t()

    module = Tied()
    compiled = hostjit.compile(module, fallback=False)
    x = torch.randn(2, 4)
    for enabled in (True, False, True, False):
        with torch.set_grad_enabled(enabled):
            assert compiled(x)[1]._base is module.weight
            module.weight.data = torch.randn(4, 3)
            torch.testing.assert_close(compiled(x), module(x))
            module.weight = nn.Parameter(torch.randn(4, 3))
            torch.testing.assert_close(compiled(x), module(x))
            assert compiled(x)[1]._base is module.weight


def test_saving(tmp_path: Path) -> None:
    def function(x: Tensor) -> Any:
        y = x.sin()
        return y, y[: y.shape[0] // 2], x[1:]

    compiled = hostjit.compile(function, fallback=False)
    for n in (4, 5, 6):
        compiled(torch.randn(n, 3, requires_grad=True))
    hostjit.save(compiled, tmp_path / "views.hostjit")
    loaded = hostjit.load(tmp_path / "views.hostjit")
    for n in (9, 4, 12):
        x = torch.randn(n, 3, requires_grad=True)
        found, expected = loaded(x), function(x)
        torch.testing.assert_close(found, expected)
        assert facts(found, [x]) == facts(expected, [x])
        torch.testing.assert_close(gradients(found, [x]), gradients(expected, [x]))


@pytest.mark.filterwarnings("error:hostjit")
def test_graphs_of_torch_compile() -> None:
    """Where gradients are enabled and no input needs one."""

    def function(x: Tensor) -> Any:
        y = x.sin()
        return y, y[: y.shape[0] // 2], y[1:]

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="hostjit", dynamic=True)
    for n in (4, 5, 9, 12):
        x = torch.randn(n, 3)
        outcomes = []
        for call in (compiled, function):
            weight = torch.tensor(2.0, requires_grad=True)
            y, first, rest = call(x)
            assert first._base is y and rest._base is y
            first.mul_(weight)
            outcomes.append((y, rest, *torch.autograd.grad(rest.square().sum(), weight)))
        torch.testing.assert_close(*outcomes)


def test_gradients_of_expansions_are_rounded_once() -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        return torch.broadcast_tensors(x, y)

    fast = hostjit.compile(function)
    torch.manual_seed(0)
    for _ in range(20):
        inputs = [torch.randn(1, 2, 1), torch.randn(5, 1, 3)]
        inputs = [x.bfloat16().requires_grad_() for x in inputs]
        tangents = [torch.randn(5, 2, 3).bfloat16() for _ in inputs]
        found = torch.autograd.grad(fast(*inputs), inputs, tangents)
        expected = torch.autograd.grad(function(*inputs), inputs, tangents)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "expand",
    [
        lambda x: x.expand(1, 1),
        lambda x: x.expand(2, 1),
        lambda x: x.expand_as(torch.ones(1)),
        lambda x: x.expand(1, 1)[None],
        lambda x: torch.broadcast_tensors(x, torch.ones(1, 3))[0],
        lambda x: x.view(1, 1),
    ],
)
def test_strides_of_expansions_of_tensors_without_dims(
    expand: Callable[[Tensor], Tensor], requires_grad: bool
) -> None:
    fast = hostjit.compile(expand)
    for _ in range(2):
        x = torch.randn(()).requires_grad_(requires_grad)
        assert facts(fast(x), [x]) == facts(expand(x), [x])
        if requires_grad:
            found = torch.autograd.grad(fast(x).sum(), x)
            torch.testing.assert_close(found, torch.autograd.grad(expand(x).sum(), x))
