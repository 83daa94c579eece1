# SPDX-License-Identifier: Apache-2.0
"""What is compiled stays what it was to the rest of Python: names, attributes, copies, calls."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import types
import weakref
from collections.abc import Callable, Container, Iterable, Sized
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit


@hostjit.compile
def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    """Multiply."""
    return x * factor


def plain(x: Tensor) -> Tensor:
    return x + 1


class Layer(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.5)
        self.gain = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.linear(x)) * self.gain

    @hostjit.compile
    def half(self, x: Tensor) -> Tensor:
        return self.linear(x) / 2


@pytest.fixture(autouse=True)
def _without_gradients() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


X = torch.ones(2, 3)


def test_a_function_keeps_its_names() -> None:
    assert (scaled.__name__, scaled.__qualname__, scaled.__module__) == ("scaled",) * 2 + (
        __name__,
    )
    assert scaled.__doc__ == "Multiply."
    assert scaled.__defaults__ == (2.0,)
    assert [*inspect.signature(scaled).parameters] == ["x", "factor"]
    assert inspect.unwrap(scaled) is scaled.__wrapped__

    @functools.wraps(scaled)
    def around(*args: Any) -> Any:
        return scaled(*args)

    assert around.__name__ == "scaled"
    assert {*vars(around)} == {"__wrapped__"}


def test_names_of_a_module_are_listed() -> None:
    fast = hostjit.compile(torch.nn.Linear(2, 2))
    fast.extra = 1
    names = dir(fast)
    assert {"weight", "extra", "training", "forward", "parameters"} <= set(names)
    assert names == sorted(set(names))
    assert "__wrapped__" in dir(hostjit.compile(torch.sin))


def doubles(x: Tensor) -> Tensor:
    return x * 2


def test_torchscript_compiles_the_function_itself() -> None:
    fast = hostjit.compile(doubles)
    fast(X)
    torch.testing.assert_close(torch.jit.script(fast)(X), doubles(X))
    scripted = torch.jit.script(hostjit.compile(torch.jit.script_if_tracing(doubles)))
    torch.testing.assert_close(scripted(X), doubles(X))


def test_a_function_may_be_given_attributes() -> None:
    fast = hostjit.compile(plain)
    fast.note = "a"
    assert fast.note == "a" and not hasattr(plain, "note")
    del fast.note
    assert not hasattr(fast, "note")


def test_a_module_is_used_through_what_is_compiled() -> None:
    layer = Layer()
    fast = hostjit.compile(layer)
    assert isinstance(fast, Layer) and type(fast) is not Layer
    assert fast.state_dict().keys() == layer.state_dict().keys()
    assert [*fast.parameters()] == [*layer.parameters()]
    fast.eval()
    assert not layer.training
    torch.testing.assert_close(fast(X), layer(X))
    fast.gain = 3.0
    assert layer.gain == 3.0
    torch.testing.assert_close(fast(X), layer(X))
    fast.load_state_dict(Layer().state_dict())
    torch.testing.assert_close(fast(X), layer(X))
    fast.to(torch.float64)
    torch.testing.assert_close(fast(X.double()), layer(X.double()))
    torch.manual_seed(1)
    drawn = fast.train()(X.double())
    torch.manual_seed(1)
    torch.testing.assert_close(drawn, layer.train()(X.double()))


def test_methods_that_return_the_module_return_what_is_compiled() -> None:
    layer = Layer()
    fast = hostjit.compile(layer)
    assert fast.eval() is fast and not layer.training
    assert fast.train() is fast and layer.training
    assert fast.to(torch.float64) is fast and layer.linear.weight.dtype is torch.float64
    assert fast.float().requires_grad_(False).apply(lambda module: None) is fast
    assert not layer.linear.weight.requires_grad
    chained = hostjit.compile(nn.Sequential(nn.Linear(3, 3)))
    assert chained.append(nn.ReLU()) is chained and len([*chained.children()]) == 2
    torch.testing.assert_close(chained(X), chained.__wrapped__(X))
    with pytest.raises(TypeError, match="unexpected keyword argument 'often'"):
        fast.eval(often=True)


def test_compiled_containers_are_containers() -> None:
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    fast = hostjit.compile(layers)
    assert isinstance(fast, hostjit._C.CompiledFunction)
    assert len(fast) == 2 and fast[0] is layers[0] and fast[-1] is layers[1]
    assert [*fast] == [*layers] and [*reversed(fast)] == [*reversed(layers)]
    assert layers[0] in fast and fast not in [*fast] and [*fast[:1]] == [layers[0]]
    torch.testing.assert_close(fast(X), layers(X))
    fast[0] = nn.Linear(3, 4)
    torch.testing.assert_close(fast(X), layers(X))
    del fast[1]
    torch.testing.assert_close(fast(X), layers(X))
    assert len(hostjit.compile(nn.Sequential())) == 0 and not hostjit.compile(nn.Sequential())

    named = hostjit.compile(nn.ModuleDict({"a": layers}))
    assert named["a"] is layers and "a" in named and [*named] == ["a"]
    with pytest.raises(KeyError):
        named["b"]


def test_others_are_no_containers() -> None:
    layer = Layer()
    for fast in (hostjit.compile(layer), hostjit.compile(lambda x: x)):
        assert bool(fast) and not isinstance(fast, Iterable | Sized | Container)
        with pytest.raises(TypeError):
            fast[0]
        with pytest.raises(TypeError):
            len(fast)


def test_functions_walk_compiled_containers() -> None:
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    fast = hostjit.compile(layers)

    def function(x: Tensor) -> Tensor:
        for layer in fast:
            x = layer(x) + len(fast)
        return fast(x) + fast[0](x)

    compiled = hostjit.compile(function)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), function(X))
    assert len(compiled.specializations) == 1


def test_copies_and_files_of_compiled_containers() -> None:
    fast = hostjit.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert type(copied) is type(fast) and len(copied) == 2 and copied[0] is not fast[0]
        torch.testing.assert_close(copied(X), fast(X))
    outer = nn.Sequential(fast, nn.Linear(3, 2))
    assert len([*outer.modules()]) == 5


def test_methods_of_a_compiled_module_are_those_of_the_module() -> None:
    layer = Layer()
    fast = hostjit.compile(layer)
    method = fast.forward
    assert isinstance(method, types.MethodType) and method.__self__ is layer
    assert method == layer.forward == fast.forward and hash(method) == hash(layer.forward)
    assert method != fast.train and method.__name__ == "forward"
    assert method.__doc__ == layer.forward.__doc__ and repr(method) == repr(layer.forward)
    assert inspect.signature(method) == inspect.signature(layer.forward)
    torch.testing.assert_close(fast.eval().forward(X), layer(X))
    reference = weakref.ref(method)
    del method
    assert reference() is None
    trained = pickle.loads(pickle.dumps(fast.train))()
    assert type(trained) is type(fast) and trained is not fast


def test_hooks_are_run() -> None:
    fast = hostjit.compile(Layer().eval())
    before = fast(X)
    handle = fast.register_forward_hook(lambda module, inputs, output: output * 2)
    torch.testing.assert_close(fast(X), before * 2)
    handle.remove()
    torch.testing.assert_close(fast(X), before)


def test_a_compiled_module_is_a_part_of_other_modules() -> None:
    layer = Layer().eval()
    outer = nn.Sequential(hostjit.compile(layer), nn.Linear(3, 2))
    assert [*outer.state_dict()] == ["0.linear.weight", "0.linear.bias", "1.weight", "1.bias"]
    assert len([*outer.parameters()]) == 4
    expected = outer[1](layer(X))
    torch.testing.assert_close(outer(X), expected)
    torch.testing.assert_close(hostjit.compile(outer)(X), expected)
    torch.testing.assert_close(torch.compile(outer, backend="hostjit")(X), expected)
    outer.train()
    assert layer.training and layer.dropout.training


def through_pickle(compiled: Any) -> Any:
    return pickle.loads(pickle.dumps(compiled))


@pytest.mark.parametrize("move", [copy.copy, copy.deepcopy, through_pickle])
def test_a_function_is_copied_by_name(move: Callable[[Any], Any]) -> None:
    assert move(scaled) is scaled
    assert move(Layer.half) is Layer.half
    moved = move(hostjit.compile(plain, runtime="evaluator"))
    assert moved.__wrapped__ is plain and moved.owner.runtime == "evaluator"
    torch.testing.assert_close(moved(X), X + 1)


def through_torch_save(compiled: Any) -> Any:
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("move", [copy.deepcopy, through_pickle, through_torch_save])
@pytest.mark.parametrize("called", [False, True])
def test_a_module_is_copied_with_its_parameters(move: Callable[[Any], Any], called: bool) -> None:
    layer = Layer().eval()
    fast = hostjit.compile(layer, fallback=False, dynamic=False)
    if called:
        fast(X)
    moved = move(fast)
    assert isinstance(moved, hostjit._C.CompiledFunction)
    assert moved.owner.arguments()[1] == fast.owner.arguments()[1]
    torch.testing.assert_close(moved(X), fast(X))
    before = fast(X)
    moved.linear.weight.mul_(2)
    torch.testing.assert_close(moved(X), moved.__wrapped__(X))
    torch.testing.assert_close(fast(X), before)
    assert copy.copy(fast).linear.weight is layer.linear.weight


def test_a_module_that_says_how_it_is_copied() -> None:
    traced = torch.fx.symbolic_trace(Layer().eval())  # defines __deepcopy__
    moved = copy.deepcopy(hostjit.compile(traced))
    assert isinstance(moved, hostjit._C.CompiledFunction)
    torch.testing.assert_close(moved(X), traced(X))


def test_a_program_is_copied() -> None:
    fast = hostjit.compile(PROGRAM, runtime="evaluator")
    moved = pickle.loads(pickle.dumps(fast))
    x = torch.randn(5, 7)
    torch.testing.assert_close(moved(x, x.T), x @ x.T)
    assert moved.owner.runtime == "evaluator"


PROGRAM = """
program @matmul(%a: tensor<f32, [5, 7], cpu>, %b: tensor<f32, [7, 5], strides=[1, 7], cpu>) {
  %c = allocate() : tensor<f32, [5, 5], cpu>
  matmul(lhs=%a, rhs=%b, out=%c)
  return %c
}
"""


def test_compiled_functions_call_each_other() -> None:
    inner = hostjit.compile(lambda x: x * 2)
    outer = hostjit.compile(lambda x: inner(x) + 1)
    torch.testing.assert_close(outer(X), X * 2 + 1)
    assert outer.host_ir().count("launch_kernel") == 1  # one kernel does both
    around = torch.compile(lambda x: inner(x) + 1, backend="hostjit", fullgraph=True)
    torch.testing.assert_close(around(X), X * 2 + 1)


def count_down(x: Tensor, steps: int) -> Tensor:
    return x if steps == 0 else fast_count_down(x + 1, steps - 1)


fast_count_down = hostjit.compile(count_down)


def test_recursion() -> None:
    for steps in (0, 3, 1):
        torch.testing.assert_close(fast_count_down(X, steps), X + steps)


def test_a_called_function_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = hostjit.compile(lambda x: scaled(x) + 1)
    torch.testing.assert_close(outer(X), X * 2 + 1)
    monkeypatch.setitem(globals(), "scaled", hostjit.compile(plain))
    torch.testing.assert_close(outer(X), X + 2)


def test_compiling_twice_is_compiling_once() -> None:
    assert hostjit.compile(scaled, runtime="evaluator").__wrapped__ is scaled.__wrapped__
