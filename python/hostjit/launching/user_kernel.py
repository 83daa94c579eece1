# SPDX-License-Identifier: Apache-2.0
"""`hostjit.kernel`: a CUDA kernel that the user brings, as something that can be launched."""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from hostjit import _C
from hostjit.kernels.cuda.nvrtc import compile_function
from hostjit.launching.providers import Code, code_of

__all__ = ["Kernel", "kernel", "kernel_of"]

_TYPES = ("ptr", "i8", "i16", "i32", "i64", "f32", "f64")
_FLOATS = ("f32", "f64")

_numbers = itertools.count()
_kernels: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def kernel(
    code: Any,
    entry: str | None = None,
    *,
    parameters: Sequence[str],
    writes: Sequence[int],
    language: str | None = None,
    options: Sequence[str] = (),
    block: int | Sequence[int] | None = None,
    shared_memory: int | None = None,
) -> Kernel:
    """Make a CUDA kernel that `hostjit.launch` launches, eagerly and in compiled functions.

    Nothing is compiled or loaded before the first launch, so that a module may make kernels where
    there is no GPU.

    Args:
        code: the text of CUDA C++ or PTX; the bytes of a cubin; a path to a file of one, which ends
            in .cu, .ptx or .cubin; or a kernel that is loaded already: the address of a
            CUfunction, or an object of cuda-python, CuPy (RawKernel) or Triton (CompiledKernel).
        entry: the name of the function in the code. Of CUDA C++ as one writes it there, such as
            "scale" or "scale<float>"; of PTX and cubins the mangled name. A loaded kernel needs
            none.
        parameters: the type of each parameter: "ptr", "i8", "i16", "i32", "i64", "f32", "f64".
        writes: positions of the pointers whose memory the kernel writes. It may read that, too;
            what it does to the memory of the others is not seen.
        language: "cuda" or "ptx": what a text is. Text is CUDA C++ by default.
        options: for NVRTC, such as "--use_fast_math" or "-DBLOCK=128".
        block: threads of a block, where a launch does not say.
        shared_memory: dynamic shared memory of a block in bytes, where a launch does not say.

    Returns: a `Kernel`. It is the same to the compiler as long as it lives: functions that launch
        it keep it alive.

    Raises: ValueError and TypeError for what can't be a kernel.

    Example:
        scale = hostjit.kernel(
            'extern "C" __global__ void scale(float* y, const float* x, float a, int n) {'
            "  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i]; }",
            "scale", parameters=["ptr", "ptr", "f32", "i32"], writes=[0], block=128)
        hostjit.launch(scale, ((n + 127) // 128,), (y, x, 2.0, n))
    """
    found = code_of(code, entry, language, options)
    types = tuple(parameters)
    for position, type_ in enumerate(types):
        if type_ not in _TYPES:
            raise ValueError(
                f"kernel '{found.entry}': parameter {position} has type {type_!r}, expected one "
                f"of: {', '.join(_TYPES)}"
            )
    written = tuple(sorted(set(writes)))
    for position in written:
        if not 0 <= position < len(types) or types[position] != "ptr":
            raise ValueError(
                f"kernel '{found.entry}': writes parameter {position}, expected the position of a "
                "pointer"
            )
    threads = block if block is not None else found.block
    shared = shared_memory if shared_memory is not None else found.shared_memory
    return Kernel(found, types, written, sizes_of(threads, "block") if threads else None, shared)


class Kernel:
    """A CUDA kernel with what its launches need to know; made by `hostjit.kernel`.

    Attributes:
        entry: the name of the function.
        parameters: the types of its parameters.
        writes: positions of the pointers whose memory it writes.
        block: threads of a block in three dimensions, or None: each launch says.
        shared_memory: dynamic shared memory of a block in bytes.
        number: by which operators refer to it.
    """

    def __init__(
        self,
        code: Code,
        parameters: tuple[str, ...],
        writes: tuple[int, ...],
        block: tuple[int, ...] | None,
        shared_memory: int,
    ) -> None:
        self.entry = code.entry
        self.parameters = parameters
        self.writes = writes
        self.block = block
        self.shared_memory = shared_memory
        self.hidden = code.hidden
        self._code = code
        with _lock:
            self.number = next(_numbers)
            _kernels[self.number] = self

    def __repr__(self) -> str:
        return f"<hostjit.Kernel '{self.entry}' ({', '.join(self.parameters)})>"

    def __reduce__(self) -> Any:
        if self._code.language == "cuda_function":
            raise TypeError(
                f"kernel '{self.entry}' is a CUfunction of this process, which can't be pickled: "
                "make it of its PTX or cubin"
            )
        return Kernel, (self._code, self.parameters, self.writes, self.block, self.shared_memory)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of all parameters, also of those that are passed behind the user's."""
        return (*self.parameters, *("i64",) * self.hidden)

    @functools.cached_property
    def name(self) -> str:
        """What programs call it, in any process."""
        word = "".join(c if c.isalnum() or c == "_" else "_" for c in self.entry)
        digest = hashlib.sha256(repr((self._code, self.parameters)).encode()).hexdigest()
        return f"{word}_{digest[:8]}"

    def image(self, arch: str) -> tuple[str, str | bytes, str]:
        """The language, the code, and the name of the function there, for a GPU like "sm_90"."""
        code = self._code
        if code.language != "cuda":
            return code.language, code.code, code.entry
        assert isinstance(code.code, str)
        ptx, lowered = compile_function(code.code, code.entry, arch, code.options)
        return "ptx", ptx, lowered

    @functools.cached_property
    def loaded(self) -> _C.DeviceKernel:
        """The kernel for launches outside of compiled functions."""
        from hostjit.lowering.cuda_launches import architecture

        language, code, entry = self.image(architecture())
        return _C.DeviceKernel(self.entry, code, language, entry, list(self.types))


def kernel_of(number: int) -> Kernel:
    """The kernel that an operator refers to."""
    found = _kernels.get(number)
    if found is None:
        raise RuntimeError(f"hostjit.launch: there is no kernel {number} any more")
    return found


def sizes_of(sizes: Any, what: str) -> tuple[Any, ...]:
    """One to three sizes, as three."""
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{what} has {len(given)} sizes, expected 1 to 3")
    return given + (1,) * (3 - len(given))
