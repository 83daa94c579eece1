# SPDX-License-Identifier: Apache-2.0
"""Inductor's kernels for the CPU: C++ in shared libraries, as kernels of a program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.codecache import CppCodeCache, CppPythonBindingsCodeCache

from hostjit import _C
from hostjit.inductor.schedule import UnsupportedLineError

__all__ = ["ERRORS", "CppKernel", "add_kernels", "parse_kernel"]

# What a launch can raise: see `_entry`.
ERRORS = [
    "RuntimeError: ZeroDivisionError",
    "IndexError: index out of bounds",
    "RuntimeError: a kernel of Inductor failed",
]

_ENTRY = "hostjit_kernel"


@dataclass(frozen=True)
class CppKernel:
    """The source of a kernel, and the C types of its parameters."""

    source: str
    types: tuple[str, ...]

    @property
    def is_tensor(self) -> list[bool]:
        """Of each parameter, whether it is the memory of a tensor; else it is a size."""
        return [type_.endswith("*") for type_ in self.types]

    @property
    def is_read_only(self) -> list[bool]:
        """Of each parameter, whether it is memory that the kernel does not write."""
        return [type_.startswith("const ") and type_.endswith("*") for type_ in self.types]


class _Source:
    """Stands for `torch._inductor.async_compile` where a kernel's definition is evaluated."""

    @staticmethod
    def cpp_pybinding(types: Sequence[str], source: str) -> CppKernel:
        return CppKernel(source, tuple(types))


class _Libraries(CppCodeCache):
    cache: dict[str, Any] = {}  # noqa: RUF012  # Inductor's: one for each subclass
    cpp_compile_command_flags = {"include_pytorch": False, "shared": True}  # noqa: RUF012

    @classmethod
    def _get_uncompiled_header(cls, device: str) -> str | None:
        return CppPythonBindingsCodeCache._get_uncompiled_header(device)


def parse_kernel(name: str, definition: str) -> CppKernel:
    """Return the kernel that the text of a definition makes."""
    if not definition.lstrip().startswith("async_compile.cpp_pybinding("):
        raise UnsupportedLineError(f"{name} is no kernel of C++")
    kernel = eval(definition, {"async_compile": _Source})  # Inductor's own text
    assert isinstance(kernel, CppKernel)
    for type_ in kernel.types:
        if not type_.endswith("*") and _plain(type_) not in ("int64_t", "long"):
            raise UnsupportedLineError(f"{name} has a parameter of type {type_}")
    return kernel


def add_kernels(program: _C.Program, kernels: dict[str, tuple[CppKernel, tuple[int, ...]]]) -> None:
    """Compile kernels, and add them to a program.

    Args:
        program: what launches them.
        kernels: by name; with each, which operand of its launches each of its parameters is.

    Raises what Inductor raises when the compiler fails.
    """

    def compile_(item: tuple[CppKernel, tuple[int, ...]]) -> str:
        kernel, places = item
        return str(_Libraries.load(kernel.source + _entry(kernel, places))._name)

    with ThreadPoolExecutor(max_workers=max(1, torch.get_num_threads())) as threads:
        paths = list(threads.map(compile_, kernels.values()))
    for name, path in zip(kernels, paths, strict=True):
        program.add_kernel(name, path, "shared_library", _ENTRY)


def _entry(kernel: CppKernel, places: Sequence[int]) -> str:
    """A function around a kernel: operands instead of parameters, and errors by number."""
    is_tensor = dict(zip(places, kernel.is_tensor, strict=True))
    parameters = ", ".join(
        f"{'void*' if is_tensor[place] else 'int64_t'} p{place}" for place in sorted(is_tensor)
    )
    arguments = ", ".join(
        f"({type_})p{place}" for type_, place in zip(kernel.types, places, strict=True)
    )
    return f"""
#include <cstring>
#include <exception>
extern "C" void {_ENTRY}({parameters}, int64_t* failure) noexcept {{
  try {{
    kernel({arguments});
  }} catch (const std::exception& error) {{
    failure[0] = std::strstr(error.what(), "ZeroDivisionError") ? 1
                 : std::strstr(error.what(), "index out of bounds") ? 2 : 3;
  }} catch (...) {{
    failure[0] = 3;
  }}
}}
"""


def _plain(type_: str) -> str:
    return re.sub(r"\bconst\b", "", type_).strip()
