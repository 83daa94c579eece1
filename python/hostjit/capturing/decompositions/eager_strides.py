# SPDX-License-Identifier: Apache-2.0
"""Eager's strides, for results whose fake tensors or decompositions have others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from hostjit.capturing.dynamic_dims import is_symbolic
from hostjit.capturing.open_sizes import all_equal, is_dense, is_open, known, some, typical
from hostjit.capturing.operand_devices import on_cuda

__all__ = ["correction_of_strides", "has_other_strides", "strides_kept", "with_strides"]

aten = torch.ops.aten
Tensor = torch.Tensor

# correct(func, args, kwargs, result): the result with eager's strides.
Correction = Callable[[Any, Sequence[Any], Any, Any], Any]


def correction_of_strides(func: Any, result: Any) -> Correction | None:
    """Return what gives the result of an operator eager's strides, where it may have others."""
    if func not in _STRIDED_OTHERWISE and torch.Tag.pointwise in func.tags and _is_empty(result):
        return _empty_as_eager
    return _STRIDED_OTHERWISE.get(func)


def has_other_strides(func: Any, shape: Sequence[int]) -> bool:
    """Tell whether a result of an operator, of a shape, may have other strides than eager's."""
    is_regular = all(size > 1 for size in shape)
    if func in (aten.view.default, aten.expand.default):
        return not is_regular
    is_empty = any(size == 0 for size in shape)
    return func in _STRIDED_OTHERWISE or (torch.Tag.pointwise in func.tags and is_empty)


def with_strides(x: Any, model: Any) -> Any:
    """A copy with the strides of `model`, which has no gaps, unless `x` has them.

    The state of an LSTM has a dimension too many in the fake tensors of torch 2.11; then the result
    stays as it is.
    """
    if not isinstance(x, Tensor):  # a gradient that a mask turned off
        return x
    strides = model.stride()
    with disable_proxy_modes_tracing():  # which has no proxies for what strides are made of
        is_model = all_equal(x.stride(), strides) or not all_equal(x.shape, model.shape)
    return x if is_model else _in_order(x, strides)


def _in_order(x: Tensor, strides: Sequence[Any]) -> Tensor:
    """A dense copy whose dims are in the order of strides."""
    order = sorted(range(x.dim()), key=lambda dim: -typical(strides[dim]))
    dense = x.permute(order).contiguous()
    return dense.permute([order.index(dim) for dim in range(x.dim())])


@contextlib.contextmanager
def strides_kept(func: Any, args: Sequence[Any], kwargs: Any) -> Iterator[None]:
    """Leave what an operator writes, within, in its layout.

    Functionalisation puts a result in the place of what is written, which may have another. What
    changes the layout alone, as `transpose_` does, is to have another.
    """
    if torch.Tag.inplace_view in func.tags:
        yield
        return
    values = [*zip(func._schema.arguments, args, strict=False)]
    values += [(a, kwargs[a.name]) for a in func._schema.arguments if a.name in kwargs]
    tensors = [
        leaf
        for argument, value in values
        if argument.alias_info is not None and argument.alias_info.is_write
        for leaf in tree_leaves(value)
        if isinstance(leaf, FunctionalTensor)
    ]
    before = [(x, x.shape, _inner(x).stride()) for x in tensors]
    yield
    for x, shape, strides in before:
        now = _inner(x)
        if all_equal(now.shape, shape) and is_dense(shape, strides):
            pairs = zip(shape, strides, now.stride(), strict=True)
            if not all(known(size == 1) or known(old == new) for size, old, new in pairs):
                torch._functionalize_replace(x.elem, _inner(_in_order(x, strides)))
                torch._functionalize_commit_update(x.elem)


def _inner(x: Any) -> Tensor:
    torch._sync(x)
    return torch._from_functional_tensor(x.elem)


def _expanded_as_eager(func: Any, args: Sequence[Any], kwargs: Any, view: Tensor) -> Any:
    if not any(map(_is_one, view.shape)):
        return view
    return _with_known_strides(args[0], view, _strides_of_expand(args[0], view.shape))


def _strides_of_expand(x: Tensor, shape: Sequence[Any]) -> list[Any]:
    """The strides of `at::inferExpandGeometry`."""
    new = len(shape) - x.dim()
    strides: list[Any] = [0] * len(shape)
    if x.dim() == 0:
        return strides
    for dim in reversed(range(len(shape))):
        if dim >= new:
            kept = known(shape[dim] == 1) or not known(x.shape[dim - new] == 1)
            strides[dim] = x.stride(dim - new) if kept else 0
        elif known(shape[dim] == 1):
            strides[dim] = shape[dim + 1] * strides[dim + 1]
    return strides


def _viewed_as_eager(func: Any, args: Sequence[Any], kwargs: Any, view: Tensor) -> Any:
    one = any(map(_is_one, view.shape))
    strides = _strides_of_view(args[0], view.shape) if one else None
    return view if strides is None else _with_known_strides(args[0], view, strides)


def _strides_of_view(x: Tensor, shape: Sequence[Any]) -> list[Any] | None:
    """The strides of `at::detail::computeStride`; None where open sizes leave them unknown."""
    if x.dim() == 0 or not (some(shape) or _any_empty(shape)):
        return None
    strides: list[Any] = [1] * len(shape)
    if _any_empty(shape):
        if all_equal(x.shape, shape):
            return [*x.stride()]
        for dim in reversed(range(len(shape) - 1)):
            after = shape[dim + 1]
            strides[dim] = strides[dim + 1] * (1 if known(after == 0) else after)
        return strides
    dim = len(shape) - 1
    step: Any = x.stride(-1)
    count: Any = 1  # elements of the dims of x that lie in a row with the step
    taken: Any = 1  # those that dims of the view have so far
    for place in reversed(range(x.dim())):
        count = count * x.shape[place]
        before = place - 1
        if place > 0 and (known(x.shape[before] == 1) or known(x.stride(before) == count * step)):
            continue
        while dim >= 0 and (not known(taken == count) or known(shape[dim] == 1)):
            strides[dim] = taken * step
            taken = taken * shape[dim]
            dim -= 1
        if not known(taken == count):
            return None
        if place > 0:
            step, count, taken = x.stride(before), 1, 1
    return strides if dim < 0 else None


def _is_one(size: Any) -> bool:
    """Whether a dim has one element; open sizes are taken for others."""
    return not is_open(size) and bool(size == 1)


def _any_empty(shape: Sequence[Any]) -> bool:
    return any(known(size == 0) for size in shape)


def _with_known_strides(x: Tensor, view: Tensor, strides: Sequence[Any]) -> Tensor:
    """A view with the strides of dims of one element that eager's has; others are as they are."""
    pairs = zip(view.shape, strides, view.stride(), strict=True)
    wanted = [new if _is_one(size) else old for size, new, old in pairs]
    if all_equal(wanted, view.stride()):
        return view
    result: Tensor = aten.as_strided.default(x, view.shape, wanted)
    return result


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


def _norm_in_format_of_operand(func: Any, args: Sequence[Any], kwargs: Any, results: Any) -> Any:
    """What fake tensors of torch 2.14 forget, and those before it know."""
    normalised, *statistics = results
    return (_in_format_of_operand(func, args, kwargs, normalised), *statistics)


def _resampled_as_eager(func: Any, args: Sequence[Any], kwargs: Any, result: Tensor) -> Any:
    """In the format of its operand: traces for CUDA forget it where there are few channels."""
    x, *rest = args
    memory_format = suggest_memory_format(x)
    if result.is_contiguous(memory_format=memory_format):
        return result
    packed = func(x.clone(memory_format=torch.contiguous_format), *rest, **kwargs)
    return packed.clone(memory_format=memory_format)


def _angle_as_eager(func: Any, args: Sequence[Any], kwargs: Any, result: Tensor) -> Any:
    """Packed for complex numbers, whose angles eager copies to where they belong."""
    return result.contiguous() if args[0].is_complex() else result


# Operators whose fake tensors have other strides than eager's results, and what gives them those.
_STRIDED_OTHERWISE: dict[Any, Correction] = {
    aten.angle.default: _angle_as_eager,
    aten.expand.default: _expanded_as_eager,
    aten.max_unpool2d.default: _in_format_of_operand,
    aten.native_group_norm.default: _norm_in_format_of_operand,
    aten.upsample_bilinear2d.default: _resampled_as_eager,
    aten.upsample_trilinear3d.default: _resampled_as_eager,
    aten.view.default: _viewed_as_eager,
}
