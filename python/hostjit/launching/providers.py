# SPDX-License-Identifier: Apache-2.0
"""Where a kernel may come from: text, bytes, files, and what other packages have loaded."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Code", "code_of"]

_TEXTS = ("cuda", "ptx")
_SUFFIXES = {".cu": "cuda", ".ptx": "ptx", ".cubin": "cubin"}
# What a cubin and a fat binary begin with.
_BINARIES = (b"\x7fELF", b"\x50\xed\x55\xba")


@dataclasses.dataclass(frozen=True)
class Code:
    """The code of a kernel.

    Attributes:
        language: "cuda" (CUDA C++), "ptx", "cubin" or "cuda_function".
        code: text; bytes of a cubin; of a CUfunction its address, such as "0x7f00".
        entry: the name of the function.
        options: for the compiler of CUDA C++.
        block: threads of a block, if the code says.
        shared_memory: dynamic shared memory of a block in bytes.
        hidden: how many null pointers its parameters end with, which callers do not pass.
    """

    language: str
    code: str | bytes
    entry: str
    options: tuple[str, ...] = ()
    block: int | None = None
    shared_memory: int = 0
    hidden: int = 0


def code_of(
    code: Any, entry: str | None, language: str | None, options: Sequence[str] = ()
) -> Code:
    """What `hostjit.kernel` is given as code; raises TypeError and ValueError for what is none."""
    if isinstance(code, Path):
        language = language or _SUFFIXES.get(code.suffix)
        if language is None:
            raise ValueError(f"kernel in {code}: expected a file that ends in .cu, .ptx or .cubin")
        code = code.read_bytes() if language == "cubin" else code.read_text()
    if isinstance(code, str):
        language = language or "cuda"
        if language not in _TEXTS:
            raise ValueError(f"kernel: language is {language!r}, expected 'cuda' or 'ptx'")
    elif isinstance(code, (bytes, bytearray, memoryview)):
        code, language = bytes(code), "cubin"
        if not code.startswith(_BINARIES):
            raise ValueError("kernel: the bytes are no cubin")
    else:
        return _loaded(code, entry)
    if entry is None:
        raise ValueError("kernel: entry is missing, expected the name of a function in the code")
    if options and language != "cuda":
        raise ValueError(f"kernel '{entry}': options are for CUDA C++, not for {language}")
    return Code(language, code, entry, tuple(options))


def _loaded(kernel: Any, entry: str | None) -> Code:
    """A kernel of another package, by what that package documents."""
    if isinstance(getattr(kernel, "asm", None), dict) and hasattr(kernel, "metadata"):
        return _of_triton(kernel)
    # CuPy: RawKernel.kernel is a Function, whose ptr is the CUfunction.
    function = getattr(kernel, "kernel", kernel)
    address = getattr(function, "ptr", None)
    if address is None:
        # Of cuda.core the kernel has a handle; cuda.bindings' handles are integers.
        handle = getattr(kernel, "handle", kernel)
        try:
            address = operator.index(handle)
        except TypeError:
            address = int(handle) if hasattr(type(handle), "__int__") else None
    if not isinstance(address, int) or isinstance(kernel, (bool, float)):
        raise TypeError(
            f"kernel: got a {type(kernel).__qualname__}, expected text, bytes, a path, the address "
            "of a CUfunction, or a kernel of cuda-python, CuPy or Triton"
        )
    if address <= 0:
        raise ValueError(f"kernel: the address of its CUfunction is {address}")
    name = entry or getattr(kernel, "name", None) or "function"
    return Code("cuda_function", hex(address), str(name))


def _of_triton(kernel: Any) -> Code:
    """A CompiledKernel of Triton: a cubin whose parameters end with pointers to scratch memory."""
    metadata = kernel.metadata
    for name in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, name, 0):
            raise ValueError(
                f"kernel '{metadata.name}' of Triton needs scratch memory, which only a launch by "
                "Triton, or of its @triton.jit function in a compiled function, gives it"
            )
    if getattr(metadata, "num_ctas", 1) != 1:
        raise ValueError(f"kernel '{metadata.name}' of Triton needs clusters of blocks")
    return Code(
        "cubin",
        kernel.asm["cubin"],
        metadata.name,
        block=32 * metadata.num_warps,
        shared_memory=metadata.shared,
        hidden=num_scratch_pointers(metadata),
    )


def num_scratch_pointers(metadata: Any) -> int:
    """How many pointers to scratch memory Triton puts behind the parameters of a kernel."""
    names = ("global_scratch_size", "profile_scratch_size")
    return sum(hasattr(metadata, name) for name in names)
