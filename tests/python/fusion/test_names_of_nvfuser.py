# SPDX-License-Identifier: Apache-2.0
"""The names that nvFuser's Python front end has, with their parameters and defaults.

Those of `nvfuser_direct.ops` and `nvfuser_direct.FusionDefinition` at commit 81c4b22f (April 2026).
"""

from __future__ import annotations

import inspect

import pytest
import torch

import hostjit
from hostjit import DataType, FusionDefinition
from hostjit.fusion.operation import OPERATIONS, UNAVAILABLE
from hostjit.fusion.operations import Operations

assert Operations  # the table is filled

# Operations whose operands have no names, by how many there are.
_POSITIONAL = {
    1: """
        abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc erfcinv erfinv exp
        exp2 expm1 floor frac imag isfinite isinf isnan isneginf isposinf isreal lgamma log log10
        log1p log2 logical_not neg rand_like randn_like real reciprocal relu round rsqrt
        segment_set set shape sigmoid sign signbit silu sin sinh sqrt tan tanh trunc
    """,
    2: """
        add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor complex
        div eq fmod gcd ge gt le logical_and logical_or logical_right_shift lt maximum minimum mod
        mul ne nextafter pow remainder sub truediv
    """,
    3: "clamp lerp threshold where",
    4: "addcmul",
}
_NAMED = """
    argsort(arg, dim, descending=False, stable=False)
    broadcast(arg, is_broadcast_dim)
    broadcast_in_dim(arg, shape, broadcast_dims)
    cast(arg, dtype)
    cat(tensors, dim=0, manual_padding=False)
    cummax(arg, dim, init=None)
    cummin(arg, dim, init=None)
    cumprod(arg, dim, init=None)
    cumsum(arg, dim, init=None)
    embedding_fwd(input, weight, padding_idx=None, max_norm=None, norm_type=None, scale_grad_by_freq=None, sparse=None)
    expand(arg, shape)
    full(shape, fill_value, dtype)
    gather(arg, index, dim)
    grouped_mm(mat1, mat2, offsets)
    index_select(arg, index, dim)
    iota(length, start=None, step=None, dtype=DataType.Int)
    linear(arg1, arg2, bias=None)
    matmul(arg1, arg2)
    normal(mean, std, shape, *, rng_seed=None, rng_offset=None, dtype=DataType.Float)
    pad(arg, pad_widths, value=None)
    permute(arg, dims)
    reshape(arg, new_shape)
    scatter(arg, index, src, dim)
    sdpfa_bwd(grad_output, query, key, value, output, logsumexp, dropout_p, is_causal, philox_seed, philox_offset, scale)
    sdpfa_fwd(query, key, value, bias=None, mask=None, dropout_p=None, is_causal=None, scale=None)
    select(arg, index, dim)
    size(arg, dim)
    slice(arg, start_indices, end_indices, strides=None, manual_normalization=False)
    squeeze(arg, dims, squeeze_expanded=False)
    stride_order(arg, stride_order)
    take_along_axis(arg, index, dim)
    topk(arg, k, dim=-1, largest=True, sorted=False)
    triu(arg, diagonal=0)
    uniform(minval, maxval, shape, *, rng_seed=None, rng_offset=None, dtype=DataType.Float)
    var(arg, dims, correction=1, keepdim=False)
    var_mean(arg, dims, correction=1, keepdim=False)
    welford(arg, dims)
"""  # noqa: E501
# Of three forms: (arg, dtype=DataType.Null), with dim, and with dims.
_REDUCTIONS = "max min prod sum"
# What hostjit refuses, and why: there is no operator of PyTorch that could run.
_REFUSED = {
    "cutlass_nvfp4_grouped_mm": "ATen has no operator for it",
    "nv_block_quantize": "ATen has no operator for it",
    "nv_grouped_block_quantize": "ATen has no operator for it",
    "preprocess_grouped_matmul_input_sf": "ATen has no operator for it",
    "scaled_mm": "its block scales are for nvFuser's kernels; see torch._scaled_mm",
}


def _named() -> list[str]:
    return [line.strip() for line in _NAMED.strip().splitlines()]


def _signature(name: str) -> inspect.Signature:
    """The signature without annotations."""
    found = OPERATIONS[name].signature()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    return inspect.Signature(plain)


def test_all_operations_are_there_or_refused() -> None:
    theirs = {line.split("(")[0] for line in _named()} | set(_REDUCTIONS.split())
    theirs.update(*(names.split() for names in _POSITIONAL.values()))
    assert len(theirs) == 129
    assert set(OPERATIONS) == theirs
    assert UNAVAILABLE == _REFUSED
    for name, reason in _REFUSED.items():
        with pytest.raises(hostjit.Error, match=f"ops.{name}: not available in hostjit: ") as error:
            getattr(FusionDefinition().ops, name)
        assert str(error.value).endswith(reason)


@pytest.mark.parametrize("line", _named(), ids=lambda line: line.split("(")[0])
def test_parameters_and_defaults(line: str) -> None:
    name = line.split("(")[0]
    assert name + str(_signature(name)) == line


@pytest.mark.parametrize("count", _POSITIONAL)
def test_operands_without_names(count: int) -> None:
    for name in _POSITIONAL[count].split():
        signature = _signature(name)
        signature.bind(*range(count))
        assert len(signature.parameters) == count


def test_forms_of_reductions() -> None:
    for name in _REDUCTIONS.split():
        with FusionDefinition() as fd:
            x, add = fd.define_tensor([3, 4]), getattr(fd.ops, name)
            for found, rank in (
                (add(x), 0),
                (add(x, DataType.Null), 0),
                (add(arg=x, dtype=DataType.Null), 0),
                (add(x, 1), 1),
                (add(x, 1, True), 2),
                (add(x, dim=-1, keepdim=True), 2),
                (add(x, [0, 1]), 0),
                (add(x, [0], False, DataType.Null), 1),
                (add(arg=x, dims=[0], keepdim=True, dtype=DataType.Null), 2),
            ):
                assert found.ndim == rank
                fd.add_output(found)
        value = torch.arange(12.0).reshape(3, 4)
        reduced = fd.execute([value])
        assert [tuple(result.shape) for result in reduced[3:6]] == [(3,), (3, 1), (3, 1)]
        torch.testing.assert_close(reduced[0], reduced[6])


def test_scales_of_grouped_products_are_refused() -> None:
    with FusionDefinition() as fd:
        x, ends = fd.define_tensor([4, 4]), fd.define_tensor([2], dtype=DataType.Int32)
        with pytest.raises(hostjit.Error, match=r"ops.grouped_mm: .*; its signature is grouped_mm"):
            fd.ops.grouped_mm(x, x, ends, x, x)


def test_forms_of_definitions() -> None:
    with FusionDefinition() as fd:
        by_shape = [
            fd.define_tensor(
                shape=[-1, 3],
                contiguity=[True, True],
                dtype=DataType.Float,
                is_cpu=True,
                stride_order=[1, 0],
            ),
            fd.define_tensor([-1, 3], True, DataType.Float, True, [1, 0]),
            fd.define_tensor(
                sizes=[2, 3],
                strides=[3, 1],
                dtype=DataType.Float,
                static_sizes=False,
                is_cpu=True,
            ),
            fd.define_tensor([2, 3], [3, 1], DataType.Float, True, True),
            fd.from_pytorch(torch.ones(2, 3), static_sizes=True),
        ]
        number = fd.define_scalar(dtype=DataType.Double)
        same = fd.define_scalar(DataType.Double)
        constant = fd.define_scalar(2.0, DataType.Double)
        sizes = fd.define_vector(size=2)
        for x in by_shape[1:]:
            fd.add_output(fd.ops.mul(fd.ops.add(by_shape[0], x), number))
        fd.add_output(fd.ops.mul(fd.ops.reshape(by_shape[0], sizes), same))
        fd.add_output(output=fd.ops.mul(by_shape[1], constant), alias_input=by_shape[1])
    assert [s.dtype() for s in (number, same, *sizes)] == [DataType.Double] * 2 + [DataType.Int] * 2
    inputs = [torch.full((2, 3), float(k)) for k in range(5)]
    found = fd.execute([*inputs, 10.0, 0.5, 3, 2], device=None, save_repro_inputs=True)
    for k, result in enumerate(found[:4]):
        torch.testing.assert_close(result, torch.full((2, 3), 10.0 * (k + 1)))
    assert found[4].shape == (3, 2) and float(inputs[1][0, 0]) == 2
    assert "nvfuser_fusion" in fd.last_repro_script()


def test_dtypes() -> None:
    assert [data_type.name for data_type in DataType] == [
        "Double",
        "Float",
        "Half",
        "Int",
        "Int32",
        "UInt64",
        "Index",
        "Bool",
        "BFloat16",
        "Float8_e4m3fn",
        "Float8_e5m2",
        "Float8_e8m0fnu",
        "Float4_e2m1fn",
        "Float4_e2m1fn_x2",
        "ComplexFloat",
        "ComplexDouble",
        "Null",
    ]
