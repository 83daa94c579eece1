# SPDX-License-Identifier: Apache-2.0
"""Large operators as the small ones they are made of, where those fuse to something faster.

PyTorch computes recurrent cells, attention and encoder layers by one operator each. At the sizes
where the host is what one waits for, linear layers and fused kernels are several times faster, and
their results agree to rounding. Larger work is left to the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import cudnn_batch_norm
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from hostjit.capturing.attention import native_attention
from hostjit.capturing.backward_decompositions import BACKWARD_DECOMPOSITIONS
from hostjit.capturing.convolution import convolution
from hostjit.capturing.dropout import dropout
from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.launches import with_aliases_written
from hostjit.capturing.memory_formats import MEMORY_FORMATS
from hostjit.capturing.open_sizes import is_open, known, some, typical
from hostjit.capturing.operand_devices import on_cuda
from hostjit.capturing.overlap import refuse_overlapping_operands
from hostjit.capturing.refused_numbers import refuse_numbers
from hostjit.capturing.result_types import refuse_other_result_types
from hostjit.capturing.scaled_dot_product import scaled_dot_product_attention
from hostjit.launching.launch_operator import LAUNCH

__all__ = ["Decompositions"]

aten = torch.ops.aten
Tensor = torch.Tensor

# Steps of recurrent networks that are unrolled, over all layers and directions, and multiply-adds
# of one of them.
_MAX_STEPS = 64
_MAX_STEP_MULTIPLY_ADDS = 1 << 19

_FLOATS = (torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)


class Decompositions(TorchDispatchMode):
    """Replaces operators of the table while it is in force, where their decomposition applies."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        refuse_numbers(func, args, kwargs)
        if func is LAUNCH:
            args = with_aliases_written(args)
        elif func._schema.is_mutable:
            refuse_overlapping_operands(func, args, kwargs)
            refuse_other_result_types(func, args, kwargs)
        decomposition = _decomposition_of(func, args)
        with self:
            # What a composite operator is made of may be in the table too.
            result = (decomposition or func.decompose)(*args, **kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
            correct = _STRIDED_OTHERWISE.get(func)
            if correct is None and torch.Tag.pointwise in func.tags and _is_empty(result):
                correct = _empty_as_eager
            if correct is None:
                return result
            with self:
                return correct(func, args, kwargs, result)
        if decomposition is None or func in MEMORY_FORMATS or func is aten.cudnn_batch_norm.default:
            return result
        with disable_proxy_modes_tracing():
            whole = func(*args, **kwargs)
        with self:
            return tree_map(_with_strides, result, whole)


def _decomposition_of(func: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    if func in _BY_DEVICE:
        cpu, cuda = _BY_DEVICE[func]
        decomposition = cuda if on_cuda(args) else cpu
        if decomposition is not None:
            return decomposition
    return _TABLE.get(func) or _OF_DYNAMO.get(func.name())


def _with_strides(x: Any, model: Any) -> Any:
    """A copy with the strides of `model`, which has no gaps, unless `x` has them.

    The state of an LSTM has a dimension too many in the fake tensors of torch 2.11; then the result
    stays as it is.
    """
    if not isinstance(x, Tensor):  # a gradient that a mask turned off
        return x
    strides = model.stride()
    if x.stride() == strides or x.shape != model.shape:
        return x
    order = sorted(range(x.dim()), key=lambda dim: -strides[dim])
    dense = x.permute(order).contiguous()
    return dense.permute([order.index(dim) for dim in range(x.dim())])


def _view_as_eager(func: Any, args: Sequence[Any], kwargs: Any, view: Tensor) -> Any:
    """A view with eager's strides of dimensions of one element."""
    x = args[0]
    if is_symbolic(view) or is_symbolic(x) or 1 not in view.shape:
        return view
    strides = _strides_on("meta", func, args, kwargs)
    if view.stride() == strides:
        return view
    return aten.as_strided.default(x, view.shape, strides, x.storage_offset())


def _empty_as_eager(func: Any, args: Sequence[Any], kwargs: Any, result: Tensor) -> Any:
    """A result without elements, with the strides that broadcasting gives it.

    The kernels for the meta device don't know them, those for the CPU have nothing else to do.
    """
    strides = _strides_on("cpu", func, args, kwargs)
    if result.stride() == strides:
        return result
    return aten.as_strided.default(result, result.shape, strides)


def _is_empty(result: Any) -> bool:
    return isinstance(result, Tensor) and not is_symbolic(result) and 0 in result.shape


def _strides_on(device: str, func: Any, args: Sequence[Any], kwargs: Any) -> tuple[int, ...]:
    """The strides of the result of an operator for operands like these on a device."""

    def model(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    with _disable_current_modes():
        args, kwargs = tree_map(model, (args, kwargs))
        return tuple(func(*args, **kwargs).stride())


def _in_format_of_operand(func: Any, args: Sequence[Any], kwargs: Any, result: Tensor) -> Any:
    if on_cuda(args):  # there it is contiguous, always
        return result
    return result.contiguous(memory_format=suggest_memory_format(args[0]))


def _multiply_add(a: Tensor, b: Tensor | float, c: Tensor) -> Tensor:
    return a * b + c


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """The sum and the product where a layer's bias has other shapes than most.

    And the product, then the sum, where eager rounds the product to a half type in between.
    """
    if bias is None or x.dtype is not bias.dtype:
        return NotImplemented
    is_vector = bias.dim() == 1
    if x.dim() == 2:
        return NotImplemented if is_vector else aten.addmm(bias, x, weight.t())
    is_row = bias.dim() > 0 and known(bias.numel() == bias.shape[-1])
    if x.is_contiguous() and bias.is_contiguous() and is_row:
        if is_vector or bias.dim() > 2:  # eager raises for the latter
            return NotImplemented
        return torch.nn.functional.linear(x, weight, bias.reshape(-1))
    if is_vector and x.dtype not in _HALVES:
        return NotImplemented
    product = torch.nn.functional.linear(x, weight)
    fits = bias.dim() <= product.dim() and all(
        known(b == 1) or known(b == p)
        for b, p in zip(reversed(bias.shape), reversed(product.shape), strict=False)
    )
    return product + bias if fits else NotImplemented


def _power(x: Tensor, exponent: Any) -> Any:
    """The power of truth values by a truth value, which fake tensors take for integers."""
    if x.dtype is not torch.bool or not isinstance(exponent, bool):
        return NotImplemented
    return x.clone() if exponent else torch.ones_like(x)


def _pad_circular(x: Tensor, pad: Sequence[int]) -> Any:
    """The ends of each dimension around it; PyTorch's writes to parts are copies of the whole."""
    sizes = x.shape[x.dim() - len(pad) // 2 :][::-1]
    if not all(
        known(width >= 0) and known(width <= sizes[position // 2])
        for position, width in enumerate(pad)
    ):
        return aten._pad_circular.default.decompose(x, pad)
    x = x.contiguous()
    for position, size in enumerate(sizes):
        before, after = pad[2 * position], pad[2 * position + 1]
        dim = x.dim() - 1 - position
        parts = (x.narrow(dim, size - before, before), x, x.narrow(dim, 0, after))
        x = torch.cat(parts, dim)
    return x


def _singular_values(x: Tensor, *, driver: str | None = None) -> Any:
    """Without the vectors, which only gradients need."""
    return aten._linalg_svd.default(x, False, False, driver=driver)[1]


def _encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Any:
    """The fast path of nn.TransformerEncoderLayer."""
    if src.dtype not in _FLOATS or src.dim() != 3 or not some(src.shape):
        return NotImplemented
    activation = torch.nn.functional.gelu if use_gelu else torch.relu

    qkv, projection = (qkv_weight, qkv_bias), (proj_weight, proj_bias)

    def attend(x: Tensor) -> Tensor:
        weights = (embed_dim, num_heads, *qkv, *projection)
        return native_attention(x, x, x, *weights, mask, need_weights=False, mask_type=mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = activation(torch.nn.functional.linear(x, ffn_weight_1, ffn_bias_1))
        return torch.nn.functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm_1(x: Tensor) -> Tensor:
        return torch.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return torch.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attend(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attend(src))
    return norm_2(x + feed_forward(x))


def _lstm_layer(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], *, reverse: bool
) -> tuple[list[Tensor], Tensor, Tensor]:
    """One direction of one layer over `x` (time, batch, features); its outputs by time.

    `weights` are those of the input, of the state, both biases if there are such, and that of the
    projection if there is one: their number tells.
    """
    weight_ih, weight_hh, *others = weights
    bias_ih, bias_hh = others[:2] if len(others) > 1 else (None, None)
    projection = others[-1] if len(others) % 2 else None
    # The part of the gates that does not wait for the step before, for all steps at once.
    from_input = torch.nn.functional.linear(x, weight_ih, bias_ih).unbind(0)
    outputs = []
    for gates in reversed(from_input) if reverse else from_input:
        gates = gates + torch.nn.functional.linear(h, weight_hh, bias_hh)
        take, forget, cell, give = gates.split(c.shape[-1], 1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(take) * torch.tanh(cell)
        h = torch.sigmoid(give) * torch.tanh(c)
        if projection is not None:
            h = torch.nn.functional.linear(h, projection)
        outputs.append(h)
    return outputs[::-1] if reverse else outputs, h, c


def _lstm(
    sequence: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """nn.LSTM, unrolled: where that pays, and where there is no operator for it anyway."""
    projected = hx[0].shape[-1] != hx[1].shape[-1]
    num_runs = num_layers * (2 if bidirectional else 1)
    per_run = (4 if has_biases else 2) + (1 if projected else 0)
    x = sequence.transpose(0, 1) if batch_first else sequence
    plain = (
        x.dtype in _FLOATS
        and x.dim() == 3
        and some(x.shape)
        and len(params) == num_runs * per_run
        and not (train and dropout)
    )
    if not plain:
        return NotImplemented
    if is_open(x.shape[0]):
        return NotImplemented
    is_long = x.shape[0] * num_runs > _MAX_STEPS
    is_large = typical(x.shape[1]) * params[1].numel() > _MAX_STEP_MULTIPLY_ADDS
    if x.dtype == torch.float32 and not projected and (is_long or is_large):
        return NotImplemented
    last_h: list[Tensor] = []
    last_c: list[Tensor] = []
    for _layer in range(num_layers):
        directions = []
        for reverse in (False, True) if bidirectional else (False,):
            run = len(last_h)
            weights = params[run * per_run : (run + 1) * per_run]
            outputs, h, c = _lstm_layer(
                x, hx[0].select(0, run), hx[1].select(0, run), weights, reverse=reverse
            )
            directions.append(outputs)
            last_h.append(h)
            last_c.append(c)
        steps = [torch.cat(parts, -1) for parts in zip(*directions, strict=True)]
        x = torch.stack(steps if bidirectional else directions[0])
    output = x.transpose(0, 1) if batch_first else x
    return output, torch.stack(last_h), torch.stack(last_c)


def _vector_norm(
    x: Tensor,
    ord: float = 2,  # noqa: A002
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """The norm of one element; the fake tensors of torch 2.11 keep its dimensions always."""
    if not known(x.numel() == 1) or x.dim() == 0:
        return NotImplemented
    reduced = len(dim) if dim else x.dim()
    kept = x.dim() if keepdim else x.dim() - reduced
    norm = aten.linalg_vector_norm.default(x.reshape(()), ord, dtype=dtype)
    return norm.reshape((1,) * kept)


_TABLE: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **BACKWARD_DECOMPOSITIONS,
    **MEMORY_FORMATS,
    aten._pad_circular.default: _pad_circular,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    aten.cudnn_batch_norm.default: cudnn_batch_norm,
    aten.dropout.default: dropout,
    aten.linalg_svdvals.default: _singular_values,
    aten.linalg_vector_norm.default: _vector_norm,
    aten.linear.default: _linear,
    aten.pow.Tensor_Scalar: _power,
}
# On the CPU, and on CUDA devices. What is taken apart on the CPU alone is one kernel of a library
# on CUDA, where launches cost more than arithmetic.
_BY_DEVICE: dict[
    torch._ops.OpOverload, tuple[Callable[..., Any] | None, Callable[..., Any] | None]
] = {
    aten.convolution.default: (convolution, None),
    # Its second result is empty on CUDA.
    aten.log_sigmoid_forward.default: (
        None,
        decomposition_table[aten.log_sigmoid_forward.default],
    ),
    aten.lstm.input: (_lstm, None),
    aten.scaled_dot_product_attention.default: (scaled_dot_product_attention, None),
}
# Operators whose fake tensors have other strides than eager's results, and what gives them those.
_STRIDED_OTHERWISE: dict[Any, Callable[[Any, Sequence[Any], Any, Tensor], Any]] = {
    aten.expand.default: _view_as_eager,
    aten.max_unpool2d.default: _in_format_of_operand,
    aten.view.default: _view_as_eager,
}
# Operators that Dynamo itself puts into graphs, by name: they exist once it has. The schema of
# this one says that a number is a tensor.
_OF_DYNAMO: dict[str, Callable[..., Any]] = {"prims::fma": _multiply_add}
