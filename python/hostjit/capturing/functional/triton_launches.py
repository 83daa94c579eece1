# SPDX-License-Identifier: Apache-2.0
"""Dynamo's launches of `@triton.jit` functions, traced as launches of hostjit's own operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops import triton_kernel_wrap
from torch._higher_order_ops.auto_functionalize import clone_preserve_strides
from torch._ops import HigherOrderOperator
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.traced_graph import storage_of
from hostjit.launching.launch_operator import LAUNCH
from hostjit.launching.triton_kernels import compile_triton, compiling, jit_function_of

__all__ = ["is_triton_launch", "trace_triton_launch"]

_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "num_consumer_groups",
    "num_buffers_warp_spec",
)


def is_triton_launch(target: Any) -> bool:
    """Tell whether a higher-order operator is a launch of a `@triton.jit` function."""
    return target in (
        triton_kernel_wrap.triton_kernel_wrapper_mutation,
        triton_kernel_wrap.triton_kernel_wrapper_functional,
    )


def trace_triton_launch(
    target: HigherOrderOperator, call: Mapping[str, Any], inputs: Sequence[int | None]
) -> dict[str, Any] | None:
    """Call `LAUNCH` for a launch of a `@triton.jit` function.

    Args:
        target: which of Dynamo's operators.
        call: its keyword arguments.
        inputs: the storages of what is traced for; the addresses of others are known to be aligned.

    Returns: of the functional one, the clones that were written.

    Raises CaptureError for what has no form as a launch.
    """
    if call["tma_descriptor_metadata"]:
        raise _unsupported("a kernel of Triton takes a TMA descriptor of the host")
    table = triton_kernel_wrap.kernel_side_table
    kernel: Any = table.get_kernel(call["kernel_idx"])
    arguments = {**call["kwargs"], **table.get_constant_args(call["constant_args_idx"])}
    tensors = {name: x for name, x in arguments.items() if isinstance(x, torch.Tensor)}
    written = _written(call, tensors)
    # Of a clone its source counts, where it may be written in the end.
    aligned = [name for name, x in tensors.items() if _is_aligned(x, inputs)]
    clones = {
        name: clone_preserve_strides(arguments[name]) for name in call.get("tensors_to_clone", ())
    }
    arguments.update(clones)
    choice = _choose(kernel, call["grid"], arguments)
    options: dict[str, Any] = {}
    if hasattr(kernel, "configs"):
        config = kernel.configs[choice]
        options = {name: getattr(config, name, None) for name in _OPTIONS}
        options = {name: value for name, value in options.items() if value is not None}
        arguments.update(config.kwargs)
    try:
        with _disable_current_modes(), compiling():
            launch = compile_triton(jit_function_of(kernel), arguments, written, options, aligned)
    except Exception as error:
        raise _unsupported(f"Triton does not compile a kernel: {error}") from error
    LAUNCH(*launch.operands(arguments, call["grid"][choice]))
    return clones if "tensors_to_clone" in call else None


def _written(call: Mapping[str, Any], tensors: Mapping[str, Any]) -> list[str]:
    """The tensors that a kernel writes, as PyTorch finds in Triton's IR; all if it can't tell."""
    given = {**call["kwargs"], **{name: _plain(tensor) for name, tensor in tensors.items()}}
    with _disable_current_modes(), compiling():
        return triton_kernel_wrap.get_mutated_tensors(
            call["kernel_idx"], call["constant_args_idx"], given, {}
        )


def _is_aligned(tensor: torch.Tensor, inputs: Sequence[int | None]) -> bool:
    """Whether 16 divides the address of a tensor at each call: of new memory, if its offset is so.

    The memory of inputs begins where the caller says.
    """
    offset = tensor.storage_offset()
    if storage_of(tensor) in inputs or not isinstance(offset, int):
        return False
    return offset * tensor.element_size() % 16 == 0


def _choose(kernel: Any, grids: Sequence[Any], arguments: Mapping[str, Any]) -> int:
    """The configuration of an autotuned kernel that is the fastest, measured on zeros."""
    if len(grids) == 1 or not torch.cuda.is_available():
        return 0
    with _disable_current_modes():
        examples = {name: _example(value) for name, value in arguments.items()}
        fixed = [tuple(_example(size) for size in grid) for grid in grids]

        def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
            fits = (
                number
                for number, config in enumerate(kernel.configs)
                if all(meta.get(name) == value for name, value in config.kwargs.items())
            )
            return fixed[next(fits)]

        kernel[grid](**examples)
        return int(kernel.configs.index(kernel.best_config))


def _example(value: Any) -> Any:
    """A value of this call; of tensors new zeros that lie as they do."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes = [int(_example(size)) for size in value.shape]
    strides = [int(_example(stride)) for stride in value.stride()]
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).zero_()


def _plain(value: Any) -> Any:
    """The fake tensor behind a functional one."""
    if not isinstance(value, FunctionalTensor):
        return value
    torch._sync(value)
    return torch._from_functional_tensor(value.elem)


def _unsupported(what: str) -> CaptureError:
    return CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what, hint="run this function eagerly")
