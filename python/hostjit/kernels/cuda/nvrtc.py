# SPDX-License-Identifier: Apache-2.0
"""From CUDA C++ to PTX, by NVIDIA's run-time compiler, which needs neither a GPU nor a toolkit."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from hostjit.kernels.cuda import ptx_files

__all__ = ["compile_function", "compile_ptx", "version"]

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
    return _compile_once(source, None, (_architecture_option(arch), *_OPTIONS), on_disk=True)


def compile_function(
    source: str, entry: str, arch: str, options: Sequence[str] = ()
) -> tuple[str, str]:
    """Compile CUDA C++ of a user for one of its kernels.

    Headers of CUDA are found where NVIDIA's wheels have them. What a text with an #include becomes
    is not kept on disk: the headers may change.

    Arguments:
        source: the text.
        entry: the kernel, as C++ names it: "scale", "scale<float>".
        arch: as for `compile_ptx`, unless the options say.
        options: for NVRTC; C++17 is the default.
    Returns: PTX, and the name of the kernel there.
    Raises: RuntimeError as `compile_ptx`, also if the text does not have the kernel.
    """
    given = tuple(options)
    if not any(option.startswith(("--gpu-architecture", "-arch")) for option in given):
        given = (_architecture_option(arch), *given)
    if not any(option.startswith(("--std", "-std")) for option in given):
        given = (*given, "--std=c++17")
    given += tuple(f"--include-path={folder}" for folder in _include_folders())
    text = _compile_once(source, entry, given, on_disk="#include" not in source)
    lowered, _, ptx = text.partition("\n")
    return ptx, lowered


def _architecture_option(arch: str) -> str:
    return f"--gpu-architecture={arch.replace('sm_', 'compute_')}"


def _compile_once(
    source: str, entry: str | None, options: tuple[str, ...], *, on_disk: bool
) -> str:
    """PTX; with an entry, a line with its name there comes first."""
    content = "\0".join((source, entry or "", *options, *map(str, version())))
    key = hashlib.sha256(content.encode()).hexdigest()
    with _lock:
        found = _compiled.get(key) or (ptx_files.read(key) if on_disk else None)
    if found is None:
        found = _compile(source, entry, options)
        if on_disk:
            ptx_files.write(key, found)
    with _lock:
        return _compiled.setdefault(key, found)


@cache
def version() -> tuple[int, int]:
    """The version of NVRTC, which PTX is written for."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _compile(source: str, entry: str | None, options: Sequence[str]) -> str:
    library = _library()
    program = ctypes.c_void_p()
    _check(
        library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
    )
    try:
        if entry is not None:
            _check(library.nvrtcAddNameExpression(program, entry.encode()))
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if library.nvrtcCompileProgram(program, len(options), texts):
            log = _text(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
            raise RuntimeError(f"NVRTC does not compile a kernel with {' '.join(options)}:\n{log}")
        ptx = _text(program, library.nvrtcGetPTXSize, library.nvrtcGetPTX)
        return ptx if entry is None else f"{_lowered_name(program, entry)}\n{ptx}"
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _lowered_name(program: ctypes.c_void_p, entry: str) -> str:
    """What a kernel is called in PTX."""
    name = ctypes.c_char_p()
    _check(_library().nvrtcGetLoweredName(program, entry.encode(), ctypes.byref(name)))
    assert name.value is not None
    return name.value.decode()


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


def _include_folders() -> list[str]:
    """The headers of CUDA, where NVIDIA's wheels have them."""
    patterns = ("cu*/include", "cuda_runtime/include", "cuda_cccl/include")
    return [str(found) for folder in _wheels() for p in patterns for found in folder.glob(p)]


def _wheels() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return list(map(Path, spec.submodule_search_locations or ())) if spec else []


def _candidates() -> Iterator[str]:
    """NVRTC of NVIDIA's wheels, which PyTorch's CUDA builds use, then the system's."""
    for folder in _wheels():
        for pattern in ("cu*/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*"):
            yield from map(str, sorted(folder.glob(pattern), reverse=True))
    yield from _LIBRARIES
