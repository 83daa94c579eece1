# SPDX-License-Identifier: Apache-2.0
"""From CUDA C++ to PTX, by NVIDIA's run-time compiler, which needs neither a GPU nor a toolkit."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from hostjit.kernels.cuda import ptx_files

__all__ = ["compile_ptx", "version"]

# What ATen's kernels are compiled with, too: contraction is the default.
_OPTIONS = ("--std=c++17", "--fmad=true")
_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")

_Function = Callable[..., int]

_compiled: dict[str, str] = {}
_lock = threading.Lock()


def compile_ptx(source: str, arch: str) -> str:
    """Compile CUDA C++ that includes nothing.

    Texts that were compiled before are kept in memory, and on disk beside the object cache.

    Arguments:
        source: the text of the kernels.
        arch: the real or virtual architecture: "sm_90" or "compute_90".
    Returns: PTX.
    Raises: RuntimeError if there is no NVRTC, or if it refuses the source: with its messages.
    Example: compile_ptx(cuda_kernel(kernel).source, "sm_90")
    """
    virtual = arch.replace("sm_", "compute_")
    content = "\0".join((source, virtual, *_OPTIONS, *map(str, version())))
    key = hashlib.sha256(content.encode()).hexdigest()
    with _lock:
        found = _compiled.get(key) or ptx_files.read(key)
    if found is None:
        found = _compile(source, virtual)
        ptx_files.write(key, found)
    with _lock:
        return _compiled.setdefault(key, found)


@cache
def version() -> tuple[int, int]:
    """The version of NVRTC, which PTX is written for."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _compile(source: str, virtual: str) -> str:
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
    )
    try:
        options = [option.encode() for option in (f"--gpu-architecture={virtual}", *_OPTIONS)]
        texts = (ctypes.c_char_p * len(options))(*options)
        if library.nvrtcCompileProgram(program, len(options), texts):
            log = _text(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
            raise RuntimeError(f"NVRTC does not compile a kernel for {virtual}:\n{log}")
        return _text(program, library.nvrtcGetPTXSize, library.nvrtcGetPTX)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(program: ctypes.c_void_p, get_size: _Function, get: _Function) -> str:
    size = ctypes.c_size_t()
    _check(get_size(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(get(program, text))
    return text.value.decode()


def _check(status: int) -> None:
    if status:
        function = _library().nvrtcGetErrorString
        function.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {function(status).decode()}")


@cache
def _library() -> ctypes.CDLL:
    for candidate in _candidates():
        try:
            # NVRTC opens it by its name alone.
            for builtins in Path(candidate).parent.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins))
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise RuntimeError(
        "no NVRTC: kernels for CUDA are compiled by libnvrtc, which CUDA builds of PyTorch bring; "
        "elsewhere, install nvidia-cuda-nvrtc"
    )


def _candidates() -> Iterator[str]:
    """NVRTC of NVIDIA's wheels, which PyTorch's CUDA builds use, then the system's."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in map(Path, folders):
        for pattern in ("cu*/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*"):
            yield from map(str, sorted(folder.glob(pattern), reverse=True))
    yield from _LIBRARIES
