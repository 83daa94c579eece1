# SPDX-License-Identifier: Apache-2.0
"""`nn.LSTM`, `nn.GRU` and `nn.RNN`: one program for any length, a short one for long ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import many_calls
import pytest
import torch
from bfloat16_lstm import skip_without
from torch import Tensor, nn
from torch.autograd import forward_ad

import hostjit

LENGTHS = [4, 5, 30, 2, 17]
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "GRU": nn.GRU,
    "RNN, tanh": nn.RNN,
    "LSTM": nn.LSTM,
    "LSTM with projections": lambda *args, **options: nn.LSTM(*args, proj_size=3, **options),
    "RNN, relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"bias": False},
    "of batches": {"batch_first": True},
    "layers with dropout": {"num_layers": 3, "dropout": 0.5},
    "both directions": {"bidirectional": True},
    "all": {"bidirectional": True, "batch_first": True, "num_layers": 2, "bias": False},
}


def network(name: str = "GRU", **options: Any) -> nn.Module:
    return NETWORKS[name](6, 5, **options).eval().requires_grad_(False)


def sequence(length: int, batch: int | None, *, batch_first: bool = False, **_: Any) -> Tensor:
    if batch is None:
        return torch.randn(length, 6)
    return torch.randn(batch, length, 6) if batch_first else torch.randn(length, batch, 6)


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("batch", [1, 3])
def test_any_length(batch: int, options: dict[str, Any], name: str, runtime: str) -> None:
    calls = [(sequence(length, batch, **options),) for length in LENGTHS]
    compiled = many_calls.check(
        network(name, **options), calls, programs=1, dynamic=True, runtime=runtime
    )
    assert "aten_call" not in str(compiled.host_ir())


@pytest.mark.parametrize("name", NETWORKS)
def test_any_length_without_batch(name: str, runtime: str) -> None:
    calls = [(sequence(length, None),) for length in LENGTHS]
    many_calls.check(network(name), calls, programs=1, dynamic=True, runtime=runtime)


def test_any_length_and_batch_with_a_state_given(runtime: str) -> None:
    options = OPTIONS["all"]
    calls = [
        (sequence(length, batch, **options), torch.randn(4, batch, 5))
        for length, batch in [(3, 4), (4, 2), (30, 5), (2, 7)]
    ]
    many_calls.check(network(**options), calls, programs=1, dynamic=True, runtime=runtime)


@pytest.mark.parametrize("projected", [0, 3])
def test_any_length_with_the_states_of_an_lstm_given(projected: int, runtime: str) -> None:
    options = OPTIONS["all"]
    calls = [
        (
            sequence(length, batch, **options),
            (torch.randn(4, batch, projected or 5), torch.randn(4, batch, 5)),
        )
        for length, batch in [(3, 4), (4, 2), (30, 5), (2, 7)]
    ]
    net = network("LSTM", proj_size=projected, **options)
    many_calls.check(net, calls, programs=1, dynamic=True, runtime=runtime)


def test_operands_that_lie_apart(runtime: str) -> None:
    calls = [
        (torch.randn(3, length, 6).transpose(0, 1), torch.randn(1, 3, 10)[..., ::2])
        for length in LENGTHS
    ]
    many_calls.check(network(), calls, programs=1, dynamic=True, runtime=runtime)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["GRU", "LSTM", "LSTM with projections"])
def test_other_types(name: str, dtype: torch.dtype, runtime: str) -> None:
    calls = [(sequence(length, 2).to(dtype),) for length in LENGTHS]
    many_calls.check(network(name).to(dtype), calls, programs=1, dynamic=True, runtime=runtime)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", NETWORKS)
def test_without_being_told_of_the_length(name: str, mode: Callable[[], Any]) -> None:
    with mode():
        calls = [(sequence(length, 1),) for length in LENGTHS]
        many_calls.check(network(name), calls, programs=2)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("length", [5, 40])
@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_recorded(name: str, length: int, mode: Callable[[], Any]) -> None:
    net = network(name, num_layers=2, batch_first=True)
    with mode():
        captured = hostjit.capture(net)
        for _ in range(4):
            x = sequence(length, 2, batch_first=True)
            torch.testing.assert_close(captured(x), net(x), check_stride=True)
    assert captured.captured is not None
    assert str(captured.host_ir()).count("for(begin=") == (2 if length == 40 else 0)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_recorded_under_autocast_and_in_training(name: str) -> None:
    skip_without(name)
    net = network(name, num_layers=2, dropout=0.5).train()

    def step(x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            output: Tensor = net(x)[0]
            return output

    for function in (step, net):
        captured = hostjit.capture(function)
        for _ in range(4):
            x = sequence(5, 2)
            results = []
            for call in (captured, function):
                torch.manual_seed(1)
                results.append((call(x), torch.get_rng_state()))
            torch.testing.assert_close(*results, rtol=0.02, atol=0.02)
        assert captured.captured is not None


@pytest.mark.parametrize("name", ["GRU", "LSTM with projections"])
def test_recorded_with_forward_derivatives(name: str) -> None:
    net = network(name)

    def derivative(x: Tensor, tangent: Tensor) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(net(forward_ad.make_dual(x, tangent))[0]).tangent

    def of_transform(x: Tensor, tangent: Tensor) -> Any:
        return torch.func.jvp(lambda x: net(x)[0], (x,), (tangent,))

    for function in (derivative, of_transform):
        captured = hostjit.capture(function)
        for _ in range(3):
            x, tangent = sequence(4, 2), sequence(4, 2)
            with torch.enable_grad():
                torch.testing.assert_close(captured(x, tangent), function(x, tangent))


@pytest.mark.filterwarnings("ignore:hostjit. '(GRU|LSTM)' has 8 recordings")
@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_recorded_at_many_lengths(name: str) -> None:
    net = network(name)
    captured = hostjit.capture(net)
    for length in range(2, 15):
        x = sequence(length, 1)
        torch.testing.assert_close(captured(x), net(x), check_stride=True)
    assert len(captured.specializations) <= 2


@pytest.mark.parametrize("name", ["GRU", "LSTM", "LSTM with projections"])
def test_backend_of_torch_compile(name: str) -> None:
    net = network(name, num_layers=2)
    frames = torch._dynamo.utils.counters["stats"]
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="hostjit", dynamic=True)
    before = frames["unique_graphs"]
    for length in LENGTHS:
        x = sequence(length, 1)
        torch.testing.assert_close(compiled(x), net(x), check_stride=True)
    assert frames["unique_graphs"] - before == 1


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients(name: str) -> None:
    net = NETWORKS[name](6, 5, bidirectional=True)
    compiled = hostjit.compile(net)
    with torch.enable_grad():
        for length in (3, 4, 5, 3):
            x = sequence(length, 2)
            gradients = []
            for call in (compiled, net):
                loss = call(x)[0].square().sum()
                gradients.append(torch.autograd.grad(loss, list(net.parameters())))
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("backend", [False, True])
def test_gradients_of_what_comes_behind(backend: bool) -> None:
    frozen = network(bidirectional=True)
    head = nn.Linear(10, 2)

    def loss(x: Tensor) -> Tensor:
        return head(frozen(x)[0]).square().sum()

    torch._dynamo.reset()
    with torch.enable_grad():
        compiled = torch.compile(loss, backend="hostjit") if backend else hostjit.compile(loss)
        for length in (4, 5, 6, 4):
            x = sequence(length, 2)
            gradients = [
                torch.autograd.grad(f(x), list(head.parameters())) for f in (compiled, loss)
            ]
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_dropout_draws_eagers_numbers(name: str) -> None:
    net = network(name, num_layers=3, dropout=0.5).train()
    compiled = hostjit.compile(net, dynamic=True, fallback=False)
    for length in LENGTHS:
        x = sequence(length, 2)
        results = []
        for call in (compiled, net):
            torch.manual_seed(1)
            results.append((call(x), torch.get_rng_state()))
        torch.testing.assert_close(*results)
    assert len(compiled.specializations) == 1


def test_errors_are_eagers() -> None:
    compiled = hostjit.compile(network(), dynamic=True)
    compiled(sequence(5, 2))
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0"):
        compiled(torch.randn(0, 2, 6))
    with pytest.raises(RuntimeError, match="must be equal to input_size"):
        compiled(torch.randn(5, 2, 7))


@pytest.mark.parametrize("length", [17, 300])
@pytest.mark.parametrize("name", ["GRU", "LSTM", "LSTM with projections"])
def test_long_sequences_are_walked(name: str, length: int, runtime: str) -> None:
    net = network(name)
    x = sequence(length, 1)
    compiled = many_calls.check(net, [(x,)], programs=1, runtime=runtime)
    text = str(compiled.host_ir())
    assert text.count("for(begin=") == 1
    assert "aten_call" not in text


def test_short_sequences_are_not() -> None:
    net = network(bidirectional=True)
    compiled = many_calls.check(net, [(sequence(8, 1),)], programs=1)
    text = str(compiled.host_ir())
    assert "for(begin=" not in text
    assert "aten_call" not in text


@pytest.mark.parametrize("length", [4, 20])
def test_under_autocast(length: int) -> None:
    net = network()

    def function(x: Tensor) -> Any:
        with torch.autocast("cpu"):
            return net(x)

    x = sequence(length, 2)
    compiled = hostjit.compile(function, fallback=False)
    torch.testing.assert_close(compiled(x), function(x), rtol=0.02, atol=0.02)
