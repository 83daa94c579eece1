# SPDX-License-Identifier: Apache-2.0
"""Small attention runs as products and kernels, and answers as eager does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from strict_comparison import RUNTIMES, check
from torch.nn import functional

import hostjit

Tensor = torch.Tensor


def attention(**options: Any) -> Callable[..., Tensor]:
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, **options)

    return attend


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_attention(options: dict[str, Any], dtype: torch.dtype, runtime: str) -> None:
    torch.manual_seed(0)
    query = torch.randn(2, 4, 5, 8, dtype=dtype)
    key, value = torch.randn(2, 2, 4, 7, 8, dtype=dtype)
    text = check(attention(**options), query, key, value, runtime=runtime)
    assert "aten_call" not in text


def test_attention_keeps_the_layout_of_permuted_heads() -> None:
    torch.manual_seed(0)
    heads = torch.randn(2, 5, 3, 4, 8).permute(2, 0, 3, 1, 4)
    check(attention(), *heads.unbind(0))


@pytest.mark.parametrize("rank", [2, 3])
def test_attention_without_heads_or_batch(rank: int) -> None:
    torch.manual_seed(0)
    check(attention(), *torch.randn(3, *(3, 5, 8)[3 - rank :]))


LATER = torch.ones(5, 5, dtype=torch.bool).triu(1)
# Of row 3 nothing is left.
MASKS = {
    "truth values": ~LATER & (torch.arange(5) != 3).unsqueeze(1),
    "infinities": torch.zeros(5, 5).masked_fill(LATER | (torch.arange(5) == 3), -math.inf).t(),
    "numbers": torch.linspace(-1, 1, 25).view(5, 5),
    "one row for all": torch.tensor([[True, True, False, True, False]]),
    "padding": torch.tensor([[True] * 3 + [False] * 2, [False] * 5]).view(2, 1, 1, 5),
    "per head": torch.linspace(-2, 2, 4).view(4, 1, 1).expand(4, 5, 5),
    "everything": torch.zeros(5, 5, dtype=torch.bool),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, dtype: torch.dtype, runtime: str) -> None:
    """Rows of which a mask leaves nothing are zeros."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8, dtype=dtype)
    mask = MASKS[name] if MASKS[name].dtype == torch.bool else MASKS[name].to(dtype)

    def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, mask)

    text = check(attend, query, key, value, mask, runtime=runtime)
    assert "aten_call" not in text


def test_a_mask_does_not_hide_what_is_no_number() -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 2, 5, 8)
    query[0, 0, 1, 2] = math.nan
    for name in ("truth values", "everything", "infinities"):
        check(
            attention(attn_mask=MASKS[name]), query, query.clamp(-1, 1).nan_to_num(), query[..., :8]
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_keys", [1, 3, 7, 8, 15, 16, 40])
@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_without_a_number_are_those_of_the_kernel(
    is_causal: bool, num_keys: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 5, 3, 4, dtype=dtype)
    key, value = torch.randn(2, 1, 5, num_keys, 4, dtype=dtype).unbind(0)
    query[0, 0, 1, 2] = key[0, 1, :, 0] = key[0, 2, 0, 0] = math.nan
    query[0, 3, :, 0], key[0, 3, :, 0] = math.inf, -math.inf
    query[0, 4, :, 0], key[0, 4, -1, 0] = math.inf, -math.inf
    check(attention(is_causal=is_causal), query, key, value)
    check(attention(is_causal=is_causal), query[0], key[0], value[0])


def test_mask_of_a_product_without_a_batch() -> None:
    torch.manual_seed(0)
    query = torch.randn(4, 5, 8)
    check(attention(attn_mask=MASKS["truth values"]), query, query, query)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": MASKS["numbers"]}])
def test_heads_that_share_keys(options: dict[str, Any], runtime: str) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    attend = attention(enable_gqa=True, **options)
    assert "aten_call" not in check(attend, query, key, value, runtime=runtime)
    permuted = query.transpose(1, 2).contiguous().transpose(1, 2)
    check(attend, permuted, key, value, runtime=runtime)
    check(attend, key, key, value, runtime=runtime)


@pytest.mark.parametrize("shared", [False, True])
def test_one_query_against_a_cache_of_keys(shared: bool) -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 1, 4, 8)
    cache = torch.randn(2, 1, 2 if shared else 4, 64, 8)
    mask = torch.arange(33) < 20

    def decode(query: Tensor, cache: Tensor, mask: Tensor) -> Tensor:
        key, value = cache[:, :, :, :33].unbind(0)
        heads = query.transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            heads, key, value, mask.view(1, 33), enable_gqa=shared
        )
        return attended.transpose(1, 2).flatten(1)

    assert "aten_call" not in check(decode, query, cache, mask)


@pytest.mark.parametrize(
    "options", [{"is_causal": True, "attn_mask": MASKS["numbers"]}, {"enable_gqa": True}]
)
def test_what_eager_refuses(options: dict[str, Any]) -> None:
    query, key = torch.randn(1, 3, 5, 8), torch.randn(1, 2, 5, 8)
    compiled = hostjit.compile(attention(**options))
    with pytest.raises(RuntimeError):
        attention(**options)(query, key, key)
    with pytest.raises((RuntimeError, hostjit.Error)):
        compiled(query, key, key)


def test_large_attention_is_left_to_pytorch() -> None:
    torch.manual_seed(0)
    query = torch.randn(1, 2, 1040, 4)
    assert "flash_attention" in check(attention(), query, query, query)


def test_rows_of_nan_where_the_flash_kernel_is_not_for_the_strides() -> None:
    q = torch.full((2, 2, 5, 8), math.nan)
    k = torch.randn(2, 2, 3, 8)
    contiguous = torch.randn(2, 2, 3, 8)
    for v in (contiguous, torch.randn(2, 2, 8, 3).mT, torch.randn(2, 2, 3, 1).expand(2, 2, 3, 8)):
        fast = hostjit.compile(functional.scaled_dot_product_attention)
        torch.testing.assert_close(
            fast(q, k, v), functional.scaled_dot_product_attention(q, k, v), equal_nan=True
        )


def test_the_flash_kernel_is_not_for_a_stride_of_a_single_element() -> None:
    q, kv = torch.full((2, 1, 5, 1), math.nan), torch.zeros(2, 1, 1, 1)
    for k in (kv, kv.as_strided(kv.shape, (1, 2, 2, 2))):
        fast = hostjit.compile(functional.scaled_dot_product_attention)
        torch.testing.assert_close(
            fast(q, k, kv), functional.scaled_dot_product_attention(q, k, kv), equal_nan=True
        )
