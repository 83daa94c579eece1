# SPDX-License-Identifier: Apache-2.0
"""Captured programs mean what eager PyTorch means, and keep the operators that lowering needs."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from eager_comparison import assert_same, check, operators
from torch import nn

from hostjit.capturing.capture import capture
from hostjit.capturing.program import ArgumentLeaf, BoundTensor
from hostjit.capturing.traced_graph import source_location


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)
    ).eval()


class Block(nn.Module):
    """A small transformer block with F.scaled_dot_product_attention."""

    def __init__(self, size: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(size)
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)

    def forward(self, x: torch.Tensor, causal: bool = False) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, c // self.heads).unbind(2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal
        )
        return x + self.out(y.transpose(1, 2).reshape(b, t, c))


def test_mlp_keeps_linear_and_has_metadata() -> None:
    model = mlp()
    program = check(model, torch.randn(1, 32))
    assert operators(program) == [
        *("aten.linear.default", "aten.tanh.default") * 2,
        "aten.linear.default",
    ]
    for node in program.graph.nodes:
        if node.op != "output":
            value = node.meta["val"]
            assert value.device.type == "cpu"
            assert len(value.size()) == len(value.stride()) and value.storage_offset() == 0
    bound = [b for b in program.inputs if isinstance(b, BoundTensor)]
    assert {id(b.tensor) for b in bound} == {id(p) for p in model.parameters()}
    assert [b for b in program.inputs if isinstance(b, ArgumentLeaf)] == [ArgumentLeaf(0)]


def test_source_lines_are_the_users() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    program = check(scaled, torch.randn(3))
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    line = scaled.__code__.co_firstlineno + 1
    assert [source_location(node) for node in nodes] == [f"{__file__}:{line}"] * 2


def test_parameters_are_read_by_reference() -> None:
    model = mlp()
    program = check(model, torch.randn(1, 32))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
        x = torch.randn(1, 32)
        assert_same(program.run(x), model(x))


@pytest.mark.parametrize("shape", [(1, 64), (8, 64), (0, 64)])
def test_layer_norm_mlp(shape: tuple[int, ...]) -> None:
    class LayerNormMlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(F.gelu(self.up(self.norm(x))))

    program = check(LayerNormMlp().eval(), torch.randn(shape))
    assert "aten.native_layer_norm.default" in operators(program)
    assert "aten.gelu.default" in operators(program)


def test_pointwise_and_softmax_stay_single_nodes() -> None:
    program = check(lambda x: (torch.softmax(x, -1), F.silu(x), F.gelu(x)), torch.randn(4, 4))
    names = ["aten._softmax.default", "aten.silu.default", "aten.gelu.default"]
    assert operators(program) == names


@pytest.mark.parametrize("causal", [False, True])
def test_attention_block(causal: bool) -> None:
    check(Block().eval(), torch.randn(2, 5, 32), causal=causal)


def test_convolution_and_pooling() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).eval()
    check(model, torch.randn(2, 3, 8, 8))


def test_lstm_and_embedding() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.cell = nn.Embedding(10, 8), nn.GRUCell(8, 8)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(tokens.size(0), 8)
            for step in range(tokens.size(1)):
                state = self.cell(self.embedding(tokens[:, step]), state)
            return state

    check(Model().eval(), torch.randint(0, 10, (2, 3)))


def test_lstm() -> None:
    program = check(nn.LSTM(4, 5, 2).eval(), torch.randn(2, 3, 4))
    assert not program.guards.unwatchable


def test_custom_operators() -> None:
    @torch.library.custom_op("hostjit_test::increment", mutates_args={"x"})
    def increment(x: torch.Tensor) -> None:
        x.add_(1)

    @torch.library.custom_op("hostjit_test::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)

    def function(x: torch.Tensor) -> Any:
        y = double(x)
        increment(y)
        increment(x)
        return y + 1

    program = check(function, torch.randn(3))
    assert "hostjit_test.increment.default" in operators(program)
    assert len(program.mutated_inputs) == 1


def test_operators_with_effects() -> None:
    matrix = torch.eye(3) * 2 + 0.1
    program = check(torch.linalg.inv, matrix)
    assert "aten._linalg_check_errors.default" in operators(program)
    with pytest.raises(torch.linalg.LinAlgError):
        program.run(torch.zeros(3, 3))


def test_autograd_functions_and_checkpoints() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    def function(x: torch.Tensor) -> Any:
        y = torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=False)
        return Double.apply(x) + y

    check(function, torch.randn(3))


def test_torch_function_modes_apply_once() -> None:
    with torch.device("cpu"):
        check(lambda x: x + torch.ones(4), torch.randn(4))


def test_captures_in_several_threads() -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            model = nn.Linear(4, 4)
            check(model, torch.randn(2, 4))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_program_keeps_nothing_alive_when_it_is_gone() -> None:
    model = nn.Linear(4, 4)
    alive = weakref.ref(model)
    check(model, torch.randn(2, 4))
    names = [name for name in globals() if name.startswith("__compiled_fn")]
    del model
    gc.collect()
    assert alive() is None
    assert not names


# Arguments and results


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: torch.Tensor


def test_nested_arguments() -> None:
    def function(a: Any, *rest: Any, scale: float = 2.0, **named: Any) -> Any:
        total = a["x"] + a["y"][0] * scale
        for item in rest:
            total = total + item.first - item.second[0]
        return {"total": total, **named}

    a = {"x": torch.randn(3), "y": [torch.randn(3), "text", None, 1.5]}
    pair = Pair(torch.randn(3), (torch.randn(3), 2))
    program = check(function, a, pair, scale=0.5, extra=torch.randn(2))
    assert program.argument_spec.tensor_count == 5
    assert program.argument_spec.matches((a, pair), {"scale": 0.5, "extra": torch.randn(2)})
    assert not program.argument_spec.matches((a, pair), {"scale": 0.25, "extra": torch.randn(2)})
    assert not program.argument_spec.matches((a, pair), {"extra": torch.randn(2), "scale": 0.5})
    assert not program.needs_bytecode


@pytest.mark.parametrize(
    "function",
    [
        lambda x: None,
        lambda x: x,
        lambda x: (x, x + 1, x),
        lambda x: [x * 2, (x, {"k": x - 1, 3: None})],
        lambda x: collections.OrderedDict(a=x + 1, b=2),
        lambda x: Pair(x + 1, [1.5, "s", x.shape, x.dtype, x.device]),
        lambda x: Result(x + 1),
        lambda x: Result(logits=x.sum(), loss=x.mean()),
        lambda x: Frozen(x + 1),
        lambda x: torch.max(x, 0),
        lambda x: (x.t(), x[0], x.view(-1), x.expand(2, 3, 3)),
        lambda x: x.unbind(0),
        lambda x: 3,
        lambda x: (),
        lambda x: torch.nn.Parameter,
    ],
)
def test_results(function: Callable[..., Any]) -> None:
    program = check(function, torch.randn(3, 3))
    assert not program.needs_bytecode, program.bytecode_reason


def test_a_result_twice_is_one_object() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x + 1
        return y, [y]

    program = check(function, torch.randn(3))
    first, (second,) = program.run(torch.randn(3))
    assert first is second


def test_an_argument_returned_is_the_argument() -> None:
    program = check(lambda x, y: (y + 1, x, y), torch.randn(2), torch.randn(2))
    x, y = torch.randn(2), torch.randn(2)
    result = program.run(x, y)
    assert result[1] is x and result[2] is y


def test_a_view_of_an_argument_shares_its_memory() -> None:
    program = check(lambda x: x[1:], torch.randn(4))
    x = torch.randn(4)
    program.run(x).zero_()
    assert x[1:].eq(0).all()


def test_parameters_and_existing_objects_are_returned_as_such() -> None:
    model = nn.Linear(2, 2)
    marker = object()

    def function(x: torch.Tensor) -> Any:
        return model(x), model.weight, marker

    with torch.no_grad():
        program = capture(function, (torch.randn(2),))
        result = program.run(torch.randn(2))
    assert result[1] is model.weight and result[2] is marker


def test_defaults_partial_methods_and_callables() -> None:
    class Thing:
        def __init__(self) -> None:
            self.weight = torch.randn(3)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

        def method(self, x: torch.Tensor, scale: float = 3.0) -> torch.Tensor:
            return self(x) * scale

    thing = Thing()
    x = torch.randn(3)
    check(thing, x)
    check(thing.method, x)
    check(functools.partial(thing.method, scale=2.0), x)
    check(torch.relu, x)
    check(mlp().forward, torch.randn(1, 32))


def test_hooks_run() -> None:
    model = nn.Linear(3, 3)
    model.register_forward_hook(lambda module, args, result: result + 1)
    model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    check(model, torch.randn(3))


# Effects


def test_complex_double_and_integers() -> None:
    check(lambda x: (x.conj() * 2j, x.real), torch.randn(3, dtype=torch.complex64))
    check(lambda x, s: x[s], torch.randn(4), slice(1, 3))
    check(lambda x, y: (x // 2, x / 3, y & x), torch.arange(4), torch.arange(4))
    check(lambda x: x.to(torch.bfloat16).sum(), torch.randn(3, dtype=torch.float64))


def test_capture_in_a_grad_region_without_gradients() -> None:
    x = torch.randn(3)
    program = capture(lambda t: torch.tanh(t) * 2, (x,))
    assert_same(program.run(x), torch.tanh(x) * 2)


def test_inference_mode() -> None:
    model = mlp()
    with torch.inference_mode():
        x = torch.randn(1, 32)
        program = capture(model, (x,))
        assert_same(program.run(x), model(x))


def test_autocast() -> None:
    model = mlp()
    x = torch.randn(4, 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        program = capture(model, (x,))
        expected = model(x)
    found = program.run(x)
    assert found.dtype is torch.bfloat16
    assert_same(found, expected)
