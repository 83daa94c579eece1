# SPDX-License-Identifier: Apache-2.0
"""`hostjit.launch`, and the operator that it is to the dispatcher, to Dynamo and to lowering."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hostjit.launching.user_kernel import Kernel, kernel_of, sizes_of

__all__ = ["LAUNCH", "launch", "words"]

_library = torch.library.Library("hostjit", "FRAGMENT")
# Pointers are given with the positions of their parameters; those that neither list has are null.
# Integers and floats are in the order of the parameters. `grid` and `block` have three sizes.
_library.define(
    "launch_kernel(int kernel, Tensor[] read, int[] read_at, Tensor(a!)[] written, "
    "int[] written_at, SymInt[] integers, float[] floats, SymInt[] grid, SymInt[] block, "
    "int shared_memory, int[] cluster, bool cooperative, bool programmatic) -> ()"
)
LAUNCH = torch.ops.hostjit.launch_kernel.default
# More items than there can be.
_ALL = 1 << 62


def launch(
    kernel: Kernel,
    grid: int | Sequence[int] | Callable[..., Any],
    args: Sequence[Any],
    *,
    block: int | Sequence[int] | None = None,
    shared_memory: int | None = None,
    cluster: Sequence[int] = (),
    cooperative: bool = False,
    programmatic: bool = False,
) -> None:
    """Launch a kernel: on the current stream of the CUDA device of its tensors, or on the CPU.

    In a compiled function it becomes a part of the program: sizes may be open, what it writes is
    seen by what follows, and it may be a node of a CUDA graph. A grid with a size of 0 does not
    run.

    Args:
        kernel: a `hostjit.Kernel`.
        grid: one to three numbers of blocks, or a function of `args` that returns them. On the CPU
            one number: of the items that a kernel over a range does; else 1, for one call.
        args: one for each parameter. Pointers: tensors of one device and of the dtype that the
            kernel says, contiguous unless it is strided, of which it gets the address of the first
            element; None for a null pointer; objects with `__cuda_array_interface__`, and on the
            CPU `__array_interface__`. Numbers for the others; an integer has to fit its parameter,
            signed or unsigned.
        block: one to three numbers of threads; by default those of the kernel. On the CPU, over a
            range, the least items that are worth a thread; without it one thread does all.
        shared_memory: dynamic shared memory of a block in bytes; by default that of the kernel.
        cluster: one to three numbers of blocks of a cluster.
        cooperative: the blocks wait for one another.
        programmatic: it may begin before what is in front of it has ended; the kernel waits itself.

    Raises: TypeError and ValueError for arguments that don't fit; RuntimeError where a tensor needs
        a gradient, which kernels don't have, and for what the compiler or the driver refuse.

    Example:
        hostjit.launch(scale, ((y.numel() + 127) // 128,), (y, x, 2.0, y.numel()), block=128)
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"hostjit.launch takes a hostjit.Kernel, got {type(kernel).__qualname__}")
    who = f"kernel '{kernel.entry}'"
    if len(args) != len(kernel.parameters):
        raise TypeError(f"{who} takes {len(kernel.parameters)} arguments, got {len(args)}")
    blocks = grid(*args) if callable(grid) else grid
    threads = kernel.block if block is None else sizes_of(block, f"{who}: block")
    sizes = sizes_of(blocks, f"{who}: grid")
    if kernel.device == "cpu":
        if shared_memory or cluster or cooperative or programmatic:
            raise ValueError(
                f"{who} runs on the CPU, where launches have no shared_memory, cluster, "
                "cooperative and programmatic"
            )
        threads = _grain(kernel, who, sizes, threads)
    elif threads is None:
        raise ValueError(f"{who}: block is missing, expected the threads of a block")
    read: list[Tensor] = []
    written: list[Tensor] = []
    read_at: list[int] = []
    written_at: list[int] = []
    integers: list[int] = []
    floats: list[float] = []
    for position, kind in enumerate(kernel.parameters):
        argument = args[position]
        if kind == "ptr":
            if argument is None:
                continue
            is_written = position in kernel.writes
            tensor = _tensor(argument, f"{who}: argument {position}", kernel.device, is_written)
            if is_written:
                written.append(tensor)
                written_at.append(position)
            else:
                read.append(tensor)
                read_at.append(position)
        elif not isinstance(argument, int if kind[0] == "i" else (int, float)):
            expected = "an integer" if kind[0] == "i" else "a number"
            raise TypeError(
                f"{who}: argument {position} is a {type(argument).__qualname__}, expected "
                f"{expected} ({kind})"
            )
        elif kind[0] == "i":
            integers.append(argument)  # type: ignore[arg-type]
        else:
            floats.append(float(argument))
    LAUNCH(
        kernel.number,
        read,
        read_at,
        written,
        written_at,
        integers,
        floats,
        list(sizes),
        list(threads),
        kernel.shared_memory if shared_memory is None else shared_memory,
        list(sizes_of(tuple(cluster), f"{who}: cluster")) if cluster else [],
        cooperative,
        programmatic,
    )


def words(kernel: Kernel, pointers: dict[int, Any], integers: Any, floats: Any) -> list[Any]:
    """What the parameters of a launch are, in their order; None for null pointers."""
    integer, number = iter(integers), iter(floats)
    found: list[Any] = []
    for position, kind in enumerate(kernel.parameters):
        if kind == "ptr":
            found.append(pointers.get(position))
        else:
            found.append(next(integer if kind[0] == "i" else number))
    return found


def _grain(kernel: Kernel, who: str, grid: Any, block: Any) -> tuple[Any, ...]:
    """The least items of a thread, for a kernel on the CPU."""
    if not kernel.over_range:
        if block is not None:
            raise ValueError(f"{who} does no range of items (over_range), so it takes no block")
        if tuple(grid) not in ((1, 1, 1), (0, 1, 1)):
            raise ValueError(
                f"{who}: grid is {grid[0] if tuple(grid[1:]) == (1, 1) else grid}, expected 1, for "
                "one call, or 0; for more make a kernel over a range of items (over_range)"
            )
    for name, sizes in (("grid", grid), ("block", block or (1, 1, 1))):
        if tuple(sizes[1:]) != (1, 1) or sizes[0] < int(name == "block"):
            raise ValueError(f"{who}: {name} is {sizes}, expected one number of items on the CPU")
    return block or (_ALL, 1, 1)


def _tensor(argument: Any, what: str, device: str, is_written: bool) -> Tensor:
    if isinstance(argument, Tensor):
        if argument.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"{what} requires a gradient, and a kernel has none: launch it under "
                "torch.no_grad(), or in the forward of a torch.autograd.Function"
            )
        return argument
    if device == "cuda" and hasattr(argument, "__cuda_array_interface__"):
        return torch.as_tensor(argument)
    if device == "cpu" and hasattr(argument, "__array_interface__"):
        if argument.__array_interface__["data"][1]:  # read-only
            if is_written:
                raise ValueError(f"{what} is read-only, and the kernel writes it")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                return torch.as_tensor(argument)
        return torch.as_tensor(argument)
    raise TypeError(f"{what} is a {type(argument).__qualname__}, expected a tensor or None (ptr)")


def _check(kernel: int, read: Any, read_at: Any, written: Any, written_at: Any, *_: Any) -> None:
    """Check what the operator is called with, for real and for fake tensors."""
    found = kernel_of(kernel)
    who = f"kernel '{found.entry}'"
    tensors = dict(zip((*written_at, *read_at), (*written, *read), strict=True))
    if not tensors:
        raise ValueError(f"{who}: no argument is a tensor, expected one that says the device")
    first = min(tensors)
    device = tensors[first].device
    for position, tensor in sorted(tensors.items()):
        if tensor.device.type != found.device:
            expected = "a CUDA device" if found.device == "cuda" else "the CPU"
            raise ValueError(
                f"{who}: argument {position} is on {tensor.device}, expected {expected}"
            )
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise ValueError(f"{who}: argument {position} is no dense tensor")
        if tensor.device != device:
            raise ValueError(
                f"{who}: argument {position} is on {tensor.device}, argument {first} on {device}"
            )
        dtype = found.dtypes[position]
        if dtype not in (None, tensor.dtype):
            raise ValueError(
                f"{who}: argument {position} is a tensor of {tensor.dtype}, expected {dtype}"
            )
        if not found.strided and not _is_contiguous(tensor):
            raise ValueError(
                f"{who}: argument {position} has strides {tuple(tensor.stride())}, expected a "
                "contiguous tensor: a kernel made with strided=True knows others"
            )


def _is_contiguous(tensor: Tensor) -> bool:
    """Whether a tensor is contiguous, for all values that its sizes may have."""
    if not any(isinstance(size, torch.SymInt) for size in (*tensor.shape, *tensor.stride())):
        return tensor.is_contiguous()
    from hostjit.lowering.sizes import is_contiguous, shape_of, strides_of

    # Strides of dims of one element say nothing.
    dims = zip(shape_of(tensor), strides_of(tensor), strict=True)
    known = [(size, stride) for size, stride in dims if size != 1]
    return is_contiguous([size for size, _ in known], [stride for _, stride in known])


def _launch(
    kernel: int,
    read: Sequence[Tensor],
    read_at: Sequence[int],
    written: Sequence[Tensor],
    written_at: Sequence[int],
    integers: Sequence[int],
    floats: Sequence[float],
    grid: Sequence[int],
    block: Sequence[int],
    shared_memory: int,
    cluster: Sequence[int],
    cooperative: bool,
    programmatic: bool,
) -> None:
    _check(kernel, read, read_at, written, written_at)
    found = kernel_of(kernel)
    pointers = dict(zip((*read_at, *written_at), (*read, *written), strict=True))
    arguments = words(found, pointers, integers, floats) + [0] * found.hidden
    torch.autograd.graph.increment_version(t for t in written if not t.is_inference())
    if found.device == "cpu":
        if grid[0] > 0:
            found.on_host.launch(grid[0], block[0], arguments)
        return
    found.loaded.launch(
        (*written, *read)[0].device.index,
        list(grid),
        list(block),
        list(cluster) or [1, 1, 1],
        shared_memory,
        cooperative,
        programmatic,
        arguments,
    )


_library.impl("launch_kernel", _launch, "CompositeExplicitAutograd")
_library._register_fake("launch_kernel", _check)
