# SPDX-License-Identifier: Apache-2.0
"""Where a kernel may come from: text, bytes, files, and what other packages have loaded."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from hostjit.launching.c_functions import c_function_of
from hostjit.launching.llvm_functions import (
    build_function,
    is_llvmlite,
    parameters_in_text,
    text_of_llvmlite,
)

__all__ = ["Code", "code_of"]

_TEXTS = ("cuda", "ptx", "llvm_ir")
_SUFFIXES = {".cu": "cuda", ".ptx": "ptx", ".cubin": "cubin", ".ll": "llvm_ir"}
# What a cubin and a fat binary begin with.
_BINARIES = (b"\x7fELF", b"\x50\xed\x55\xba")


@dataclasses.dataclass(frozen=True)
class Code:
    """The code of a kernel.

    Attributes:
        language: "cuda" (CUDA C++), "ptx", "cubin" or "cuda_function"; for the CPU "llvm_ir" or
            "c_function".
        code: text; bytes of a cubin; of a function of this process its address, such as "0x7f00".
        entry: the name of the function.
        options: for the compiler of CUDA C++.
        block: threads of a block, if the code says.
        shared_memory: dynamic shared memory of a block in bytes.
        hidden: how many null pointers its parameters end with, which callers do not pass.
        parameters: their types, as far as the code tells, with a range of items.
        owner: what has to live as long as a function of this process is called.
    """

    language: str
    code: str | bytes
    entry: str
    options: tuple[str, ...] = ()
    block: int | None = None
    shared_memory: int = 0
    hidden: int = 0
    parameters: tuple[str, ...] | None = None
    owner: Any = None

    @property
    def is_cpu(self) -> bool:
        """Whether it runs on the CPU."""
        return self.language in ("llvm_ir", "c_function")

    @property
    def is_address(self) -> bool:
        """Whether it is a function of this process, which means nothing to another."""
        return self.language in ("cuda_function", "c_function")


def code_of(
    code: Any,
    entry: str | None,
    language: str | None,
    options: Sequence[str] = (),
    *,
    parameters: Sequence[str] | None = None,
    over_range: bool = False,
) -> Code:
    """What `hostjit.kernel` is given as code; raises TypeError and ValueError for what is none."""
    found = _cpu_code_of(code, entry, language, parameters, over_range)
    if found is None:
        return _other_code_of(code, entry, language, options)
    if options:
        raise ValueError(f"kernel '{found.entry}': options are for CUDA C++, not for the CPU")
    return found


def _cpu_code_of(
    code: Any,
    entry: str | None,
    language: str | None,
    parameters: Sequence[str] | None,
    over_range: bool,
) -> Code | None:
    if isinstance(code, FunctionType):
        entry = entry or _identifier(code.__name__)
        return _of_text(build_function(code, entry, parameters, over_range=over_range), entry)
    if is_llvmlite(code):
        return _of_text(*text_of_llvmlite(code, entry))
    function = c_function_of(code)
    if function is not None:
        name = entry or _identifier(function.name or "function")
        text = hex(function.address)
        return Code("c_function", text, name, parameters=function.parameters, owner=code)
    if language == "c_function":
        if isinstance(code, bool) or not isinstance(code, int) or code <= 0:
            raise ValueError(f"kernel: the address of the C function is {code!r}")
        return Code("c_function", hex(code), entry or "function")
    return None


def _of_text(text: str, entry: str) -> Code:
    return Code("llvm_ir", text, entry, parameters=tuple(parameters_in_text(text, entry)))


def _identifier(name: str) -> str:
    """The name of a Python function, such as "<lambda>", in letters, digits and underscores."""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def _other_code_of(
    code: Any, entry: str | None, language: str | None, options: Sequence[str]
) -> Code:
    if isinstance(code, Path):
        language = language or _SUFFIXES.get(code.suffix)
        if language is None:
            raise ValueError(
                f"kernel in {code}: expected a file that ends in .cu, .ptx, .cubin or .ll"
            )
        code = code.read_bytes() if language == "cubin" else code.read_text()
    if isinstance(code, str):
        language = language or "cuda"
        if language not in _TEXTS:
            raise ValueError(
                f"kernel: language is {language!r}, expected one of: {', '.join(_TEXTS)}"
            )
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
    if language == "llvm_ir":
        return _of_text(code, entry)
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
            f"kernel: got a {type(kernel).__qualname__}, expected text, bytes, a path, a Python "
            "function, a function of llvmlite.ir, ctypes, cffi or numba, the address of a "
            "CUfunction, or a kernel of cuda-python, CuPy or Triton"
        )
    if address <= 0:
        raise ValueError(f"kernel: the address of its CUfunction is {address}")
    name = entry or getattr(kernel, "name", None) or "function"
    # CuPy and cuda.core unload a module with the last object that is of it.
    return Code("cuda_function", hex(address), str(name), owner=kernel)


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
