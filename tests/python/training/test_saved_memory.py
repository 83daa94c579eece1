# SPDX-License-Identifier: Apache-2.0
"""How long a backward pass holds what was saved for it, and what it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import compiled_autograd
from torch.multiprocessing.reductions import StorageWeakRef

import hostjit
from hostjit import _C
from hostjit.backend.graph_compilation import compile_graph
from hostjit.compiling.options import Options

saved: list[StorageWeakRef] = []
alive_at_the_end: list[int] = []


@torch.library.custom_op("hostjit_saved_memory::first", mutates_args=())
def first(x: Tensor) -> Tensor:
    """Comes first in a forward, so that its backward comes last."""
    return x.clone()


@torch.library.custom_op("hostjit_saved_memory::last_of_backward", mutates_args=())
def last_of_backward(gradient: Tensor) -> Tensor:
    alive_at_the_end.append(sum(not reference.expired() for reference in saved))
    return gradient.clone()


first.register_fake(torch.empty_like)
last_of_backward.register_fake(torch.empty_like)
first.register_autograd(lambda ctx, gradient: last_of_backward(gradient))


@pytest.fixture(autouse=True)
def _forget() -> None:
    torch._dynamo.reset()
    saved.clear()
    alive_at_the_end.clear()


WAYS: dict[str, Callable[[Callable[..., Any], str], Callable[..., Any]]] = {
    "hostjit.compile": lambda function, runtime: hostjit.compile(function, runtime=runtime),
    "torch.compile": lambda function, runtime: torch.compile(
        function, backend="hostjit", options={"runtime": runtime}
    ),
    "dynamic": lambda function, runtime: torch.compile(
        function, backend="hostjit", options={"runtime": runtime}, dynamic=True
    ),
}
each_way = pytest.mark.parametrize("way", WAYS)


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(8, 8), nn.Tanh())))


def loss_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: module(first(x)).square().sum()


@each_way
def test_what_was_saved_goes_as_soon_as_it_was_used(way: str, runtime: str) -> None:
    module = layers()
    own = {parameter.untyped_storage()._cdata for parameter in module.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in own:
            saved.append(StorageWeakRef(tensor.untyped_storage()))
        return tensor

    fast = WAYS[way](loss_of(module), runtime)
    x = torch.randn(5, 8, requires_grad=True)
    own.add(x.untyped_storage()._cdata)
    for _ in range(3):
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = fast(x)
        assert len(saved) >= 4
        loss.backward()
    assert alive_at_the_end == [0, 0, 0]


def test_a_backward_that_compiled_autograd_hands_over(runtime: str) -> None:
    module = layers()

    def note(module: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        saved.append(StorageWeakRef(result.untyped_storage()))

    for layer in module[1::2]:  # type: ignore[index]  # what Tanh saves
        layer.register_forward_hook(note)
    options = {"runtime": runtime, "fallback": False}
    compiler = torch.compile(backend="hostjit", options=options)
    x = torch.randn(5, 8, requires_grad=True)
    for _ in range(3):
        saved.clear()
        loss = loss_of(module)(x)
        assert sum(not reference.expired() for reference in saved) == 4
        with compiled_autograd._enable(compiler):
            loss.backward()
    assert alive_at_the_end[-1] == 0  # Dynamo holds what it compiles for


@each_way
def test_a_retained_graph_keeps_it(way: str, runtime: str) -> None:
    module = layers()
    fast = WAYS[way](loss_of(module), runtime)
    x = torch.randn(5, 8, requires_grad=True)
    expected = torch.autograd.grad(loss_of(module)(x), x)
    loss = fast(x)
    for _ in range(2):
        torch.testing.assert_close(torch.autograd.grad(loss, x, retain_graph=True), expected)
    torch.testing.assert_close(torch.autograd.grad(loss, x), expected)
    with pytest.raises(RuntimeError, match=r"a second time|already been freed"):
        torch.autograd.grad(loss, x)


@each_way
def test_what_others_hold_stays(way: str, runtime: str) -> None:
    fast = WAYS[way](lambda x: (first(x) * 2).sin().exp(), runtime)
    x = torch.randn(4, requires_grad=True)
    result = fast(x)
    tangent = torch.randn(4)
    before = tangent.clone(), result.detach().clone()
    result.backward(tangent)
    torch.testing.assert_close((tangent, result.detach()), before, rtol=0, atol=0)
    torch.testing.assert_close(
        x.grad, tangent * (2 * x).sin().exp().detach() * 2 * (2 * x).cos().detach()
    )


def boxed(function: Callable[..., Any], *inputs: Tensor) -> _C.CompiledFunction:
    graph = torch.fx.symbolic_trace(function)
    for node, value in zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta["example_value"] = value
    return compile_graph(graph, "boxed", Options(), donates=True)


def test_a_boxed_call_empties_its_list() -> None:
    compiled = boxed(lambda x, y: (x + y, x), torch.ones(3), torch.ones(3))
    for number in range(3):
        x, y = torch.full((3,), float(number)), torch.ones(3)
        arguments = [x, y]
        total, same = compiled.call_boxed(arguments)
        assert arguments == []
        assert torch.equal(total, x + y)
        assert torch.equal(same, x)


def test_a_boxed_call_that_fails_empties_its_list_too() -> None:
    compiled = boxed(
        lambda x, index: (x.cos().index_select(0, index), index + 1), torch.ones(3), torch.tensor(1)
    )
    for _ in range(2):
        arguments = [torch.ones(3), torch.tensor(7)]
        with pytest.raises(IndexError, match="out of range"):
            compiled.call_boxed(arguments)
        assert arguments == []
    arguments = [torch.zeros(3), torch.tensor(2)]
    assert compiled.call_boxed(arguments)[0].item() == 1


def test_a_boxed_call_takes_a_list() -> None:
    compiled = boxed(lambda x: (x + 1,), torch.ones(3))
    with pytest.raises(TypeError, match="takes a list, got tuple"):
        compiled.call_boxed((torch.ones(3),))  # type: ignore[arg-type]


def test_a_program_donates_what_no_output_refers_to() -> None:
    program = _C.parse(
        """
        program @p(%x: tensor<f32, [4], cpu>, %y: tensor<f32, [4], cpu>) {
          %z = allocate() : tensor<f32, [4], cpu>
          copy(source=%x, out=%z)
          %v = view(source=%y) : tensor<f32, [2], cpu>
          return %z, %v
        }
        """
    )
    program.donate_inputs([0, 1])
    assert str(program).count("deallocate") == 1
    assert "deallocate(buffer=%x)" in str(program)
    with pytest.raises(hostjit.Error, match="input 2 of a program with 2"):
        program.donate_inputs([2])
