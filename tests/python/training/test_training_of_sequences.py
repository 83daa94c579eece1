# SPDX-License-Identifier: Apache-2.0
"""`nn.LSTM`, `nn.GRU` and `nn.RNN` with gradients: one program for any length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from bfloat16_lstm import skip_without
from torch import Tensor, nn

import hostjit

LENGTHS = [4, 30, 2]
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "GRU": nn.GRU,
    "RNN, tanh": nn.RNN,
    "RNN, relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
    "LSTM": nn.LSTM,
    "LSTM with projections": lambda *args, **options: nn.LSTM(*args, proj_size=3, **options),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "without biases": {"bias": False},
    "of batches": {"batch_first": True},
    "layers with dropout": {"num_layers": 3, "dropout": 0.5},
    "both directions": {"bidirectional": True},
    "all": {"bidirectional": True, "batch_first": True, "num_layers": 2, "bias": False},
}


def network(name: str = "GRU", **options: Any) -> nn.Module:
    return NETWORKS[name](6, 5, **options)


def sequence(length: int, batch: int | None = 2, *, batch_first: bool = False, **_: Any) -> Tensor:
    if batch is None:
        return torch.randn(length, 6, requires_grad=True)
    sizes = (batch, length, 6) if batch_first else (length, batch, 6)
    return torch.randn(*sizes, requires_grad=True)


def tensors_of(results: Any) -> list[Tensor]:
    if isinstance(results, Tensor):
        return [results]
    return [tensor for part in results for tensor in tensors_of(part)]


def gradients(
    call: Callable[..., Any], args: Sequence[Any], wanted: Sequence[Tensor]
) -> tuple[list[Tensor], Sequence[Tensor | None]]:
    """Results, and the gradients of what is wanted, for arbitrary gradients of the results."""
    torch.manual_seed(1)
    results = tensors_of(call(*args))
    torch.manual_seed(2)
    tangents = [torch.randn_like(result) for result in results]
    found = torch.autograd.grad(results, wanted, tangents, allow_unused=True)
    return [result.detach() for result in results], found


def check(
    function: Callable[..., Any],
    calls: Sequence[Sequence[Any]],
    parameters: Sequence[Tensor],
    *,
    programs: int = 1,
    **options: Any,
) -> hostjit.CompiledFunction:
    """Compare calls with eager's; returns the compiled function, which has that many programs."""
    compiled = hostjit.compile(function, **options)
    for call in calls:
        wanted = [t for t in (*tensors_of(call), *parameters) if t.requires_grad]
        expected = gradients(function, call, wanted)
        found = gradients(compiled, call, wanted)
        torch.testing.assert_close(found, expected, check_stride=True, rtol=1e-4, atol=1e-5)
    assert len(compiled.specializations) == programs
    return compiled


@pytest.mark.parametrize("name", NETWORKS)
def test_any_length(name: str, runtime: str) -> None:
    net = network(name)
    calls = [(sequence(length),) for length in LENGTHS]
    compiled = check(net, calls, [*net.parameters()], dynamic=True, runtime=runtime)
    assert "for(begin=" in str(compiled.host_ir())


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_any_length_with_options(options: dict[str, Any], name: str) -> None:
    net = network(name, **options)
    calls = [(sequence(length, **options),) for length in LENGTHS]
    check(net, calls, [*net.parameters()], dynamic=True)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_without_being_told_of_the_length(name: str) -> None:
    net = network(name)
    check(net, [(sequence(n),) for n in LENGTHS], [*net.parameters()], programs=2)


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
def test_one_length(name: str) -> None:
    net = network(name, num_layers=2)
    compiled = check(net, [(sequence(40),)] * 2, [*net.parameters()], dynamic=False)
    assert str(compiled.host_ir()).count("for(begin=") == 2


@pytest.mark.parametrize("name", ["RNN, tanh", "LSTM"])
def test_without_batch(name: str) -> None:
    net = network(name)
    check(net, [(sequence(n, None),) for n in LENGTHS], [*net.parameters()], dynamic=True)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_states_and_batches_that_vary(name: str, runtime: str) -> None:
    options = OPTIONS["all"]
    net = network(name, **options)

    def call(length: int, batch: int) -> tuple[Any, ...]:
        states = [torch.randn(4, batch, 5, requires_grad=True) for _ in range(2)]
        state = tuple(states) if name == "LSTM" else states[0]
        return sequence(length, batch, **options), state

    calls = [call(*sizes) for sizes in [(3, 4), (4, 2), (30, 5), (2, 7)]]
    check(net, calls, [*net.parameters()], dynamic=True, runtime=runtime)


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
@pytest.mark.parametrize("part", ["outputs", "last states", "last output"])
def test_losses_of_some_results(part: str, name: str) -> None:
    net = network(name, num_layers=2)

    def loss(x: Tensor) -> Tensor:
        outputs, last = net(x)
        last = last[0] if isinstance(last, tuple) else last
        chosen: Tensor = {"outputs": outputs, "last states": last, "last output": outputs[-1]}[part]
        return chosen.square().sum()

    check(loss, [(sequence(n),) for n in LENGTHS], [*net.parameters()], dynamic=True)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_some_weights_are_frozen(name: str) -> None:
    net = network(name, num_layers=2)
    net.get_parameter("weight_hh_l0").requires_grad_(False)
    net.get_parameter("bias_ih_l1").requires_grad_(False)
    calls = [(sequence(n).detach(),) for n in LENGTHS]
    check(net, calls, [*net.parameters()], dynamic=True)


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types(dtype: torch.dtype, name: str) -> None:
    net = network(name).to(dtype)
    exact = network(name).double()
    exact.load_state_dict(net.state_dict())
    compiled = hostjit.compile(net, dynamic=True)
    tolerance = 0.06 if dtype is torch.bfloat16 else 1e-7
    for length in LENGTHS:
        x = sequence(length).to(dtype)
        found = gradients(lambda x: compiled(x)[0].float().mean(), (x,), [*net.parameters()])
        expected = gradients(
            lambda x: exact(x)[0].float().mean(), (x.double(),), [*exact.parameters()]
        )
        torch.testing.assert_close(
            found, expected, check_dtype=False, rtol=tolerance, atol=tolerance / 5
        )
    assert len(compiled.specializations) == 1


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_operands_that_lie_apart(name: str) -> None:
    net = network(name)
    calls = [
        (torch.randn(3, length, 12, requires_grad=True).transpose(0, 1)[..., ::2],)
        for length in LENGTHS
    ]
    check(net, calls, [*net.parameters()], dynamic=True)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_gradients_of_gradients(name: str) -> None:
    net = network(name)
    compiled = hostjit.compile(net)
    x = sequence(20)
    results = []
    for call in (compiled, net):
        (gradient,) = torch.autograd.grad(call(x)[0].square().sum(), [x], create_graph=True)
        results.append(torch.autograd.grad(gradient.square().sum(), [x, *net.parameters()]))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_gradients_by_a_transform(name: str) -> None:
    net = network(name)

    def function(x: Tensor) -> Tensor:
        return torch.func.grad(lambda x: net(x)[0].square().sum())(x)

    compiled = hostjit.compile(function)
    x = sequence(5).detach()
    torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_under_autocast(name: str) -> None:
    skip_without(name)
    net = network(name, num_layers=2)

    def function(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            output: Tensor = net(x)[0]
        return output

    compiled = hostjit.compile(function)
    x = sequence(5)
    found, expected = (gradients(call, (x,), [*net.parameters()]) for call in (compiled, function))
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
def test_backend_of_torch_compile(name: str) -> None:
    net = network(name, num_layers=2)
    frames = torch._dynamo.utils.counters["stats"]
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="hostjit", dynamic=True)
    before = frames["unique_graphs"]
    for length in LENGTHS:
        x = sequence(length)
        wanted = [x, *net.parameters()]
        found, expected = (gradients(call, (x,), wanted) for call in (compiled, net))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert frames["unique_graphs"] - before == 1


def test_needs_of_gradients_are_known_to_the_function() -> None:
    net = network()

    def function(x: Tensor) -> tuple[Tensor, tuple[bool, bool]]:
        output, last = net(x)
        return output.sum(), (last.requires_grad, last.is_leaf)

    compiled = hostjit.compile(function)
    x = sequence(4)
    with torch.no_grad():
        assert compiled(x)[1] == function(x)[1]
    assert compiled(x)[1] == function(x)[1] == (True, False)
