# SPDX-License-Identifier: Apache-2.0
"""`hostjit.kernel`: from code that the user brings to a `hostjit.Kernel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from hostjit.launching.parameters import Parameters, parameters_of
from hostjit.launching.providers import Code, code_of
from hostjit.launching.user_kernel import Kernel, sizes_of

__all__ = ["kernel"]


@overload
def kernel(
    code: None = None,
    entry: str | None = None,
    *,
    parameters: Sequence[str] | None = None,
    writes: Sequence[int],
    language: str | None = None,
    options: Sequence[str] = (),
    block: int | Sequence[int] | None = None,
    shared_memory: int | None = None,
    over_range: bool = False,
    strided: bool = False,
) -> Callable[[Any], Kernel]: ...
@overload
def kernel(
    code: Any,
    entry: str | None = None,
    *,
    parameters: Sequence[str] | None = None,
    writes: Sequence[int],
    language: str | None = None,
    options: Sequence[str] = (),
    block: int | Sequence[int] | None = None,
    shared_memory: int | None = None,
    over_range: bool = False,
    strided: bool = False,
) -> Kernel: ...
def kernel(
    code: Any = None,
    entry: str | None = None,
    *,
    parameters: Sequence[str] | None = None,
    writes: Sequence[int],
    language: str | None = None,
    options: Sequence[str] = (),
    block: int | Sequence[int] | None = None,
    shared_memory: int | None = None,
    over_range: bool = False,
    strided: bool = False,
) -> Kernel | Callable[[Any], Kernel]:
    """Make a kernel that `hostjit.launch` launches, eagerly and in compiled functions.

    For CUDA nothing is compiled or loaded before the first launch, so that a module may make
    kernels where there is no GPU. Without `code` it decorates what would be the code.

    Args:
        code: for CUDA the text of CUDA C++ or PTX; the bytes of a cubin; a path to a file of one,
            which ends in .cu, .ptx or .cubin; or a kernel that is loaded already: the address of a
            CUfunction, or an object of cuda-python, CuPy (RawKernel) or Triton (CompiledKernel).
            For the CPU a Python function that builds the body with an `llvmlite.ir.IRBuilder` and
            the parameters, which it is called with; an `llvmlite.ir.Function` or Module; the text
            of LLVM IR, or a path that ends in .ll; a C function of ctypes, cffi or numba (cfunc);
            the address of one. Those take no exception out, return nothing, and run without the
            GIL.
        entry: the name of the function in the code. Of CUDA C++ as one writes it there, such as
            "scale" or "scale<float>"; of PTX and cubins the mangled name. Functions need none.
        parameters: the type of each parameter: "ptr", "i8", "i16", "i32", "i64", "f32", "f64"; or
            of a pointer to elements of one dtype that dtype and a star: "f32*", "bf16*", "bool*".
            LLVM IR and C functions with a signature need none.
        writes: positions of the pointers whose memory the kernel writes. It may read that, too;
            what it does to the memory of the others is not seen.
        language: what a text is: "cuda", the default, "ptx" or "llvm_ir"; and "c_function" of an
            address.
        options: for NVRTC, such as "--use_fast_math" or "-DBLOCK=128".
        block: threads of a block, where a launch does not say. On the CPU, over a range, the least
            items that are worth a thread.
        shared_memory: dynamic shared memory of a block in bytes, where a launch does not say.
        over_range: the kernel, on the CPU, does a range of items: two more parameters, i64, at the
            end are the first item to do and the end of them. `parameters` is without the two.
        strided: pointers may be of tensors that are not contiguous: the kernel knows the strides,
            from numbers that it is given or otherwise.

    Returns: a `Kernel`. It is the same to the compiler as long as it lives: functions that launch
        it keep it alive.

    Raises: ValueError and TypeError for what can't be a kernel; for LLVM IR with the line.

    Example:
        scale = hostjit.kernel(
            'extern "C" __global__ void scale(float* y, const float* x, float a, int n) {'
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i]; }",
            "scale", parameters=["ptr", "ptr", "f32", "i32"], writes=[0], block=128)
        hostjit.launch(scale, ((n + 127) // 128,), (y, x, 2.0, n))
    """
    if code is None:

        def decorate(code: Any) -> Kernel:
            made: Kernel = kernel(
                code,
                entry,
                parameters=parameters,
                writes=writes,
                language=language,
                options=options,
                block=block,
                shared_memory=shared_memory,
                over_range=over_range,
                strided=strided,
            )
            return made

        return decorate
    found = code_of(code, entry, language, options, parameters=parameters, over_range=over_range)
    who = f"kernel '{found.entry}'"
    given = parameters_of(who, parameters, found.parameters, over_range=over_range)
    written = tuple(sorted(set(writes)))
    for position in written:
        if not 0 <= position < len(given.types) or given.types[position] != "ptr":
            raise ValueError(
                f"{who}: writes parameter {position}, expected the position of a pointer"
            )
    if found.is_cpu:
        _check_for_cpu(who, found, given, block, shared_memory, over_range)
    elif over_range:
        raise ValueError(f"{who}: over_range is for the CPU; on CUDA a block knows its number")
    threads = block if block is not None else found.block
    return Kernel(
        found,
        given.words,
        written,
        sizes_of(threads, "block") if threads else None,
        shared_memory if shared_memory is not None else found.shared_memory,
        over_range=over_range,
        strided=strided,
    )


def _check_for_cpu(
    who: str,
    code: Code,
    parameters: Parameters,
    block: int | Sequence[int] | None,
    shared_memory: int | None,
    over_range: bool,
) -> None:
    if shared_memory is not None:
        raise ValueError(f"{who}: shared_memory is for CUDA")
    if block is not None and not over_range:
        raise ValueError(f"{who}: block is for kernels over a range of items (over_range)")
    for position, type_ in enumerate(parameters.types):
        if code.language == "c_function" and type_ in ("i8", "i16"):
            raise ValueError(
                f"{who}: parameter {position} is an {type_}, which callers in C make an int of as "
                "its sign demands: have the function take an i32 or an i64"
            )
