# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks and encoder layers run as small operators, and answer as eager does."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from strict_comparison import RUNTIMES, check
from torch import nn
from torch.nn import functional

import hostjit

# The last row is padded throughout: eager answers NaN.
PADDING = torch.tensor([[False, False, False, True, True], [True] * 5])


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_first": True},
        {"bias": False},
        {"num_layers": 2},
        {"bidirectional": True},
        {"bidirectional": True, "batch_first": True, "num_layers": 2, "bias": False},
        {"num_layers": 2, "dropout": 0.5},
    ],
)
def test_lstm(options: dict[str, Any], runtime: str) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(6, 8, **options).eval()
    x = torch.randn(3, 4, 6)
    assert "lstm" not in check(model, x, runtime=runtime).replace("program @LSTM", "")
    batch = 3 if options.get("batch_first") else 4
    runs = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    state = (torch.randn(runs, batch, 8), torch.randn(runs, batch, 8))
    check(model, x, state, runtime=runtime)


def test_lstm_of_one_sequence_without_batch() -> None:
    torch.manual_seed(0)
    check(nn.LSTM(6, 8).eval(), torch.randn(3, 6))


def test_large_lstm_stays_one_operator() -> None:
    torch.manual_seed(0)
    assert "rnn_layer" in check(nn.LSTM(6, 96).eval(), torch.randn(65, 4, 6))
    assert "rnn_layer" in check(nn.LSTM(6, 128).eval(), torch.randn(2, 9, 6))
    assert "rnn_layer" not in check(nn.LSTM(6, 96).eval(), torch.randn(65, 1, 6))


@pytest.mark.parametrize("bias", [True, False])
def test_lstm_with_projections(bias: bool) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(6, 8, num_layers=2, bidirectional=True, proj_size=4, bias=bias).eval()
    assert "aten_call" not in check(model, torch.randn(3, 2, 6))


def test_long_lstm_of_a_type_without_an_operator() -> None:
    torch.manual_seed(0)
    check(nn.LSTM(3, 4).double().eval(), torch.randn(66, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_need_no_operator(cell: Callable[..., nn.Module], runtime: str) -> None:
    torch.manual_seed(0)
    assert "aten_call" not in check(cell(6, 8).eval(), torch.randn(2, 6), runtime=runtime)


LAYERS = {"num_layers": 3, "dropout": 0.5}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("model", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_between_layers(model: Callable[..., nn.Module], gradients: bool) -> None:
    options = {"bidirectional": True, "batch_first": True} if model is nn.GRU else {}
    torch.manual_seed(0)
    net = model(4, 3, **LAYERS, **options).requires_grad_(gradients)
    compiled = hostjit.compile(net, runtime="evaluator", fallback=False)
    x = torch.randn(2, 2, 4)
    results, states = [], []
    for run in (net, compiled):
        torch.manual_seed(1)
        y, last = run(x)
        states.append(torch.get_rng_state())
        results.append([y, last])
        if gradients:
            results[-1].append(torch.autograd.grad(y.pow(2).sum(), list(net.parameters())))
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(*states)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("model", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_between_layers_of_packed_sequences(
    model: Callable[..., nn.Module], gradients: bool
) -> None:
    torch.manual_seed(0)
    net = model(4, 3, **LAYERS).requires_grad_(gradients)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 4), [3, 1])
    compiled = hostjit.compile(net)
    torch.manual_seed(1)
    found = [net(packed)[0].data]
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match="runs in parts"):
        found.append(compiled(packed)[0].data)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("model", [nn.GRU, nn.RNN])
def test_other_recurrent_networks(model: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    check(model(6, 8, num_layers=2, bidirectional=True).eval(), torch.randn(3, 4, 6))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(norm_first: bool, batch_first: bool, activation: str, runtime: str) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(
        16, 4, 32, activation=activation, norm_first=norm_first, batch_first=batch_first
    ).eval()
    text = check(model, torch.randn(2, 5, 16), runtime=runtime)
    assert "_transformer_encoder_layer_fwd" not in text


ENCODER_MASKS: dict[str, dict[str, torch.Tensor]] = {
    "causal": {"src_mask": nn.Transformer.generate_square_subsequent_mask(5)},
    "truth values": {"src_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)},
    "padding": {"src_key_padding_mask": PADDING},
    "both": {
        "src_mask": torch.ones(5, 5, dtype=torch.bool).triu(1),
        "src_key_padding_mask": PADDING,
    },
}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", ENCODER_MASKS)
def test_encoder_layer_with_a_mask(name: str, norm_first: bool) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first).eval()

    def masked(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x, **ENCODER_MASKS[name])
        return result

    assert "aten_call" not in check(masked, torch.randn(2, 5, 16))


@pytest.mark.parametrize("parts", [2, [1, 3]])
def test_parts_are_views(parts: Any) -> None:
    def difference(x: torch.Tensor) -> torch.Tensor:
        first, second = x.split(parts, -1)[:2]
        return torch.mm(first.reshape(-1, 1), second.reshape(1, -1)[:, :4])

    torch.manual_seed(0)
    assert "aten_call" not in check(difference, torch.randn(4, 4))


def test_parts_that_share_memory_with_a_result_still_do() -> None:
    def parts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.unsafe_chunk(x + 1, 2, 0)

    x = torch.randn(4, 4)
    check(parts, x)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_log_sigmoid(dtype: torch.dtype, runtime: str) -> None:
    """Its strides and both results are eager's, and it fuses."""
    x = torch.randn(4, 6).mul(30).to(dtype)
    x[0, :5] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, -104.0])
    for operand in (x, x.t(), x[:, ::2], x.view(1, 2, 3, 4).to(memory_format=torch.channels_last)):
        check(torch.ops.aten.log_sigmoid_forward, operand, runtime=runtime)
        text = check(lambda x: functional.logsigmoid(x) * 2, operand, runtime=runtime)
        assert "aten_call" not in text


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("p", [math.nan, -0.5, 1.5])
def test_dropout_of_no_probability(p: float, is_training: bool) -> None:
    compiled = hostjit.compile(lambda x: torch.dropout(x, p, is_training))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1"):
            compiled(torch.ones(3))


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("sizes", [(2, 3), (0, 3), ()])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_sum_over_an_empty_list_of_dims(
    keepdim: bool, sizes: tuple[int, ...], runtime: str
) -> None:
    """`nansum` takes it for all of them."""
    compiled = hostjit.compile(
        lambda x: x.nansum((), keepdim=keepdim), runtime=runtime, fallback=False
    )
    x = torch.randn(sizes)
    for value in (x, x.requires_grad_()):
        found, expected = compiled(value), value.nansum((), keepdim=keepdim)
        torch.testing.assert_close(found, expected, check_stride=True)
    torch.testing.assert_close(*(torch.autograd.grad(r.sum(), x) for r in (found, expected)))


@pytest.mark.parametrize("options", [{"p": 0.0}, {"training": False}, {"p": 0.0, "inplace": True}])
def test_dropout_of_nothing_returns_its_operand(options: dict[str, Any]) -> None:
    x = torch.randn(2, 3)
    assert hostjit.compile(lambda x: functional.dropout(x, **options))(x) is x


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic", "trilinear"])
def test_interpolation_in_half_precision(mode: str, dtype: torch.dtype, runtime: str) -> None:
    torch.manual_seed(0)
    dims = {"linear": 1, "trilinear": 3}.get(mode, 2)
    x = torch.randn(2, 3, *(5, 4, 6)[:dims]).to(dtype)
    fast = hostjit.compile(
        lambda x: functional.interpolate(x, scale_factor=1.7, mode=mode), runtime=runtime
    )
    assert torch.equal(fast(x), functional.interpolate(x, scale_factor=1.7, mode=mode))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_running_statistics_in_half_precision(runtime: str) -> None:
    torch.manual_seed(0)
    model = nn.BatchNorm1d(3).bfloat16()
    copied = copy.deepcopy(model)
    x = torch.randn(4, 3).bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(hostjit.compile(copied, runtime=runtime)(x), model(x))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(copied.state_dict()[name], value)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_truncated_quotients_of_half_precision(runtime: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 250).bfloat16() * 9
    for divisor in (torch.randn(4, 250).bfloat16(), torch.tensor(0.3).bfloat16(), 0.3):
        fast = hostjit.compile(lambda x, y: torch.div(x, y, rounding_mode="trunc"), runtime=runtime)
        assert torch.equal(fast(x, divisor), torch.div(x, divisor, rounding_mode="trunc"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_as_strided_before_the_first_element_of_an_input(runtime: str) -> None:
    memory = torch.arange(12.0)
    fast = hostjit.compile(lambda x: x.as_strided((2, 2), (3, 1), 1), runtime=runtime)
    found = fast(memory[5:])
    assert torch.equal(found, memory.as_strided((2, 2), (3, 1), 1))
    assert found.data_ptr() == memory[1:].data_ptr()


def test_strides_of_single_elements_in_views() -> None:
    x = torch.randn(2, 1, 1, 4)
    check(lambda x: x.permute(2, 0, 3, 1).view(1, 2, 4), x)
    check(lambda x: x.expand(1, 1, 1, 1), torch.randn(1, 1))
    check(lambda x: x.expand(3, 1, -1), torch.randn(1, 1))
    check(lambda x: torch.einsum("aij,ajk->aik", x, x + 1), torch.randn(1, 3, 3))


def test_strides_of_results_without_elements() -> None:
    scale = torch.ones(1)
    for shape in [(0, 1), (3, 0, 1), (2, 0, 1, 3), (0, 3)]:
        check(
            lambda x: (x * scale, (x + scale).relu(), torch.where(x > scale, x, scale)),
            torch.empty(shape),
        )
    check(lambda x: functional.rms_norm(x, (1,), scale), torch.empty(0, 1))


def test_max_unpool_keeps_channels_last() -> None:
    x = torch.randn(1, 2, 4, 6).to(memory_format=torch.channels_last)
    small, places = functional.max_pool2d(x, 2, return_indices=True)
    check(lambda x, places: functional.max_unpool2d(x, places, 2), small, places)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_scaled_multiply_add(runtime: str) -> None:
    """Dynamo makes it of an operator whose schema takes no numbers, and gives it one."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.addcmul_(y, y, value=0.5)

    check(function, torch.randn(3, 4), torch.randn(3, 4), runtime=runtime)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_views_of_a_part_of_an_input_where_another_is_written(runtime: str) -> None:
    def function(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total.add_(1)
        return x.view(-1, x.shape[-1]) * 2 + x.reshape(-1, 1).sum()

    tokens = torch.arange(30).reshape(3, 10)
    for height in (1, 3):
        fast = hostjit.compile(function, runtime=runtime, fallback=False)
        total = torch.zeros(2)
        for place in (5, 6, 0, 9):
            x = tokens[:height, place : place + 1]
            assert torch.equal(fast(total, x), function(torch.zeros(2), x))
        assert total.tolist() == [4, 4]
        assert len(fast.specializations) == 1


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_soft_margin_losses_have_the_type_of_the_input(other: torch.dtype, reduction: str) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.soft_margin_loss(x, y, reduction=reduction) * 2

    torch.manual_seed(0)
    x, y = torch.randn(4, 5), torch.randn(4, 5).sign().to(other)
    compiled = hostjit.compile(loss, fallback=False)
    torch.testing.assert_close(compiled(x, y), loss(x, y))
    if reduction != "none":
        leaf, other_leaf = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(leaf, y).backward()
        loss(other_leaf, y).backward()
        torch.testing.assert_close(leaf.grad, other_leaf.grad)


@pytest.mark.parametrize("length", [3, 40])
def test_an_lstm_in_bfloat16(length: int) -> None:
    model = nn.LSTM(6, 8, num_layers=2, dtype=torch.bfloat16).eval()
    check(model, torch.randn(length, 2, 6, dtype=torch.bfloat16))
