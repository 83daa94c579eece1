# SPDX-License-Identifier: Apache-2.0
"""Small convolutions are generated, large ones are the library's, and both answer as eager does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hostjit

CASES: dict[str, tuple[type[nn.Module], dict[str, Any], tuple[int, ...]]] = {
    "1d": (nn.Conv1d, {"kernel_size": 3}, (1, 6, 17)),
    "1d batch": (nn.Conv1d, {"kernel_size": 3, "padding": 1}, (3, 6, 17)),
    "1d strided dilated": (
        nn.Conv1d,
        {"kernel_size": 3, "stride": 2, "dilation": 2, "padding": 3},
        (2, 6, 20),
    ),
    "1d one place": (nn.Conv1d, {"kernel_size": 1}, (2, 6, 9)),
    "1d without batch": (nn.Conv1d, {"kernel_size": 2}, (6, 9)),
    "2d": (nn.Conv2d, {"kernel_size": 3}, (1, 6, 9, 11)),
    "2d padded": (nn.Conv2d, {"kernel_size": 3, "padding": 1}, (2, 6, 9, 11)),
    "2d same": (nn.Conv2d, {"kernel_size": (3, 4), "padding": "same"}, (1, 6, 9, 11)),
    "2d circular": (
        nn.Conv2d,
        {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
        (1, 6, 9, 11),
    ),
    "2d uneven": (
        nn.Conv2d,
        {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1), "dilation": (2, 1)},
        (2, 6, 9, 11),
    ),
    "2d no bias": (nn.Conv2d, {"kernel_size": 3, "bias": False}, (1, 6, 9, 11)),
    "2d one place": (nn.Conv2d, {"kernel_size": 1, "stride": 2}, (1, 6, 9, 11)),
    "1d side by side": (nn.Conv1d, {"kernel_size": 3, "stride": 3}, (2, 6, 17)),
    "2d side by side": (nn.Conv2d, {"kernel_size": 2, "stride": 2}, (2, 6, 9, 11)),
    "2d patches": (nn.Conv2d, {"kernel_size": (8, 7), "stride": (8, 7)}, (1, 6, 32, 30)),
    "2d patches batch no bias": (
        nn.Conv2d,
        {"kernel_size": 8, "stride": 8, "bias": False},
        (3, 6, 16, 32),
    ),
    "2d depthwise": (nn.Conv2d, {"kernel_size": 3, "padding": 1, "groups": 6}, (2, 6, 9, 11)),
    "2d depthwise no bias": (
        nn.Conv2d,
        {"kernel_size": 3, "groups": 6, "bias": False},
        (1, 6, 9, 11),
    ),
    "1d groups": (nn.Conv1d, {"kernel_size": 3, "groups": 3, "dilation": 2}, (1, 6, 17)),
    "1d groups batch": (nn.Conv1d, {"kernel_size": 3, "groups": 2, "stride": 2}, (3, 6, 17)),
    "1d groups one place": (nn.Conv1d, {"kernel_size": 1, "groups": 2}, (2, 6, 9)),
    "2d groups": (nn.Conv2d, {"kernel_size": 3, "groups": 2}, (1, 6, 9, 11)),
    "2d groups batch": (
        nn.Conv2d,
        {"kernel_size": (2, 3), "groups": 3, "padding": 1},
        (2, 6, 9, 4),
    ),
    "2d groups no bias": (
        nn.Conv2d,
        {"kernel_size": 3, "groups": 2, "bias": False},
        (2, 6, 9, 11),
    ),
    "2d groups of one channel": (
        nn.Conv2d,
        {"kernel_size": 3, "groups": 6, "out": 12},
        (2, 6, 5, 6),
    ),
    "3d": (nn.Conv3d, {"kernel_size": 2}, (1, 6, 3, 4, 5)),
    "transposed": (nn.ConvTranspose2d, {"kernel_size": 3, "stride": 2}, (1, 6, 5, 4)),
}


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_convolution(name: str, dtype: torch.dtype, runtime: str) -> None:
    module, options, sizes = CASES[name]
    torch.manual_seed(0)
    given = {key: option for key, option in options.items() if key != "out"}
    outputs = options.get("out", 6 if "groups" in options else 8)
    model = module(6, outputs, **given).to(dtype).eval()
    x = torch.randn(sizes, dtype=dtype)
    fast = hostjit.compile(model, runtime=runtime)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), check_stride=True)
        library = name in ("3d", "transposed")
        assert ("aten::convolution" in fast.host_ir()) == library


def test_channels_last_stays_so() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(6, 8, 3).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 6, 9, 11).to(memory_format=torch.channels_last)
    fast = hostjit.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), check_stride=True)


def test_large_convolutions_are_left_to_the_library() -> None:
    torch.manual_seed(0)
    large = (nn.Conv2d(32, 32, 3), (4, 32, 64, 64))
    grouped = (nn.Conv2d(32, 32, 3, groups=4), (1, 32, 32, 32))
    in_short_rows = (nn.Conv2d(32, 32, 3, groups=4), (4, 32, 7, 7))
    for model, sizes in (large, grouped, in_short_rows):
        x = torch.randn(sizes)
        fast = hostjit.compile(model.eval())
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), check_stride=True)
        assert "aten::convolution" in fast.host_ir()


@pytest.mark.parametrize("weight_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("batch", [1, 27])
def test_very_large_convolutions_have_the_strides_of_eager(
    weight_format: torch.memory_format, batch: int
) -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(4, 20, 3, padding=1).eval().to(memory_format=weight_format)
    x = torch.randn(batch, 4, 660, 660 // batch)
    fast = hostjit.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), check_stride=True)
    is_plain = weight_format is torch.contiguous_format
    assert ("clone" in fast.host_ir()) == (is_plain and batch == 1)
    assert (fast.host_ir().count("aten::convolution") > 1) == (is_plain and batch > 1)


@pytest.mark.parametrize("name", ["1d", "3d", "groups", "7x7", "bfloat16", "one channel"])
def test_very_large_convolutions_in_parts(name: str) -> None:
    torch.manual_seed(0)
    model, x = {
        "1d": (nn.Conv1d(4, 20, 5, stride=2), torch.randn(9, 4, 100_004)),
        "3d": (nn.Conv3d(2, 20, 1), torch.randn(9, 2, 40, 40, 40)),
        "groups": (nn.Conv2d(4, 20, 3, groups=2), torch.randn(9, 4, 220, 220)),
        "7x7": (nn.Conv2d(2, 20, 7), torch.randn(9, 2, 226, 226)),
        "bfloat16": (nn.Conv2d(4, 20, 3), torch.randn(18, 4, 220, 220)),
        "one channel": (nn.Conv2d(1, 20, 3), torch.randn(1, 1, 700, 700)),
    }[name]
    if name == "bfloat16":
        model, x = model.bfloat16(), x.bfloat16()
    fast = hostjit.compile(model.eval())
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), check_stride=True)
    assert (fast.host_ir().count("aten::convolution") > 1) == (name != "one channel")


def test_a_window_larger_than_the_input_raises_what_eager_raises() -> None:
    model = nn.Conv1d(1, 1, 5).eval()
    with torch.no_grad(), pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        hostjit.compile(model)(torch.randn(1, 1, 3))


def test_weights_are_read_at_each_call() -> None:
    torch.manual_seed(0)
    model = nn.Conv1d(2, 3, 2).eval()
    x = torch.randn(1, 2, 5)
    fast = hostjit.compile(model)
    with torch.no_grad():
        fast(x)
        model.weight.data.mul_(2)
        torch.testing.assert_close(fast(x), model(x))
