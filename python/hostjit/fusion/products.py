# SPDX-License-Identifier: Apache-2.0
"""Matrix products, linear layers and attention."""

from __future__ import annotations

import operator

from hostjit.fusion.attention import attention, attention_backward
from hostjit.fusion.builder import Builder, aten
from hostjit.fusion.data_type import DataType
from hostjit.fusion.operation import UNAVAILABLE, operation
from hostjit.fusion.values import Scalar, Shape, Tensor

__all__: list[str] = []


def _same_dtype(builder: Builder, *tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.dtype() is not tensors[0].dtype():
            raise builder.error(f"{tensors[0]} and {tensor} differ in dtype: cast one")


def _fit(builder: Builder, left: Tensor, a: int | None, right: Tensor, b: int | None) -> None:
    if a is not None and b is not None and a != b:
        raise builder.error(f"{left} and {right} do not fit: {a} and {b} should be equal")


@operation("product")
def matmul(builder: Builder, arg1: Tensor, arg2: Tensor) -> Tensor:
    """Multiply matrices, vectors, or batches of them, as torch.matmul does."""
    if not arg1.ndim or not arg2.ndim:
        raise builder.error(f"takes tensors with dims, found {arg1} and {arg2}")
    _same_dtype(builder, arg1, arg2)
    _fit(builder, arg1, arg1.sizes[-1], arg2, arg2.sizes[-2 if arg2.ndim > 1 else 0])
    batch: Shape = ()
    if arg1.ndim > 2 or arg2.ndim > 2:
        parts = [Tensor(t.fusion, t.name, t.dtype(), t.node, t.sizes[:-2]) for t in (arg1, arg2)]
        batch = builder.broadcast(parts)
    rows = arg1.sizes[-2:-1] if arg1.ndim > 1 else ()
    columns = arg2.sizes[-1:] if arg2.ndim > 1 else ()
    node = builder.call(aten.matmul.default, arg1, arg2)
    return builder.tensor(node, arg1.dtype(), (*batch, *rows, *columns))


@operation("product")
def linear(builder: Builder, arg1: Tensor, arg2: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply by a transposed matrix of (out, in) features and add a bias of (out)."""
    if not arg1.ndim or arg2.ndim != 2:
        raise builder.error(f"takes a tensor with dims and a matrix, found {arg1} and {arg2}")
    _same_dtype(builder, arg1, arg2, *([] if bias is None else [bias]))
    _fit(builder, arg1, arg1.sizes[-1], arg2, arg2.sizes[1])
    if bias is not None:
        if bias.ndim != 1:
            raise builder.error(f"bias has to have 1 dim, found {bias}")
        _fit(builder, arg2, arg2.sizes[0], bias, bias.sizes[0])
    node = builder.call(aten.linear.default, arg1, arg2, bias)
    return builder.tensor(node, arg1.dtype(), (*arg1.sizes[:-1], arg2.sizes[0]))


@operation("product")
def grouped_mm(builder: Builder, mat1: Tensor, mat2: Tensor, offsets: Tensor) -> Tensor:
    """Multiply groups of rows or columns, which end at the offsets, by matrices of their own."""
    if mat1.ndim not in (2, 3) or mat2.ndim not in (2, 3) or offsets.ndim != 1:
        raise builder.error(
            f"takes matrices or batches of them and 1 dim of offsets, found {mat1}, {mat2} and "
            f"{offsets}"
        )
    if mat1.ndim == mat2.ndim == 3:
        raise builder.error("takes offsets where one of both is a matrix: use ops.matmul")
    _same_dtype(builder, mat1, mat2)
    ends = builder.cast(offsets, DataType.Int32)
    node = builder.call(aten._grouped_mm.default, mat1, mat2, ends)
    groups = offsets.sizes if mat1.ndim == mat2.ndim == 2 else ()
    return builder.tensor(node, mat1.dtype(), (*groups, mat1.sizes[-2], mat2.sizes[-1]))


@operation("attention")
def sdpfa_fwd(
    builder: Builder,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    dropout_p: Scalar | None = None,
    is_causal: Scalar | None = None,
    scale: Scalar | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return attention, the logarithms of its sums, and the state of its random numbers.

    Query, key and value are (batch, heads, length, features). On the CPU nothing is dropped, so
    `dropout_p` has to be 0 there, and the state is empty.
    """
    _four_dims(builder, query, key, value)
    _same_dtype(builder, query, key, value)
    options = _attention_options(builder, dropout_p, is_causal, scale)
    if bias is not None or mask is not None:
        raise builder.error(
            "bias and mask are not available: use is_causal, or write it with ops.matmul"
        )
    found = builder.call(attention, query, key, value, *options)
    parts = [builder.call(operator.getitem, found, index) for index in range(4)]
    shape = query.sizes
    return (
        builder.tensor(parts[0], query.dtype(), (*shape[:-1], value.sizes[-1])),
        builder.tensor(parts[1], DataType.Float, shape[:-1]),
        builder.tensor(parts[2], DataType.UInt64, (None,)),
        builder.tensor(parts[3], DataType.UInt64, ()),
    )


@operation("attention")
def sdpfa_bwd(
    builder: Builder,
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    dropout_p: Scalar | None,
    is_causal: Scalar | None,
    philox_seed: Tensor,
    philox_offset: Tensor,
    scale: Scalar | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value, from the results of `sdpfa_fwd`."""
    _four_dims(builder, grad_output, query, key, value, output)
    options = _attention_options(builder, dropout_p, is_causal, scale)
    tensors = (grad_output, query, key, value, output, logsumexp)
    found = builder.call(attention_backward, *tensors, philox_seed, philox_offset, *options)
    first, second, third = (
        builder.tensor(builder.call(operator.getitem, found, index), of.dtype(), of.sizes)
        for index, of in enumerate((query, key, value))
    )
    return first, second, third


def _four_dims(builder: Builder, *tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.ndim != 4:
            raise builder.error(f"takes tensors of 4 dims, found {tensor}")


def _attention_options(
    builder: Builder, dropout_p: Scalar | None, is_causal: Scalar | None, scale: Scalar | None
) -> tuple[object, object, object]:
    given = (dropout_p, 0.0), (is_causal, False), (scale, None)
    dropout, causal, by = (
        default if scalar is None else builder.number(scalar, "an option")
        for scalar, default in given
    )
    return dropout, causal, by


_NO_OPERATOR = (
    "cutlass_nvfp4_grouped_mm",
    "nv_block_quantize",
    "nv_grouped_block_quantize",
    "preprocess_grouped_matmul_input_sf",
)
UNAVAILABLE.update(dict.fromkeys(_NO_OPERATOR, "ATen has no operator for it"))
UNAVAILABLE["scaled_mm"] = "its block scales are for nvFuser's kernels; see torch._scaled_mm"
