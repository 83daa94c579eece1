# SPDX-License-Identifier: Apache-2.0
"""Whose code it is: that of users, of torch, hostjit, Triton or the standard library."""

from __future__ import annotations

import os
import sys
import sysconfig
import types

import torch
import typing_extensions

from hostjit import _C
from hostjit.recording import numpy_types
from hostjit.recording.triton import types as triton_types

__all__ = [
    "HOSTJIT",
    "TORCH",
    "acts_for_library",
    "is_asked_by_user",
    "is_imported",
    "is_library",
    "is_of_standard_library",
    "is_own",
    "user_line",
]

HOSTJIT = os.path.dirname(os.path.abspath(_C.__file__)) + os.sep
TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_LAUNCHED = tuple(os.path.join(HOSTJIT, name) for name in ("launching", "optimizers"))
_LIBRARIES = (
    *(TORCH, HOSTJIT, *numpy_types.FOLDERS, *triton_types.FOLDERS, "<frozen"),
    typing_extensions.__file__,  # of later standard libraries
)
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = tuple(
    {path + os.sep for path in (sysconfig.get_paths()[n] for n in ("purelib", "platlib"))}
)
_OF_SETTINGS = (
    *(os.path.join(TORCH, name) + os.sep for name in ("backends", "sparse")),
    *(os.path.join(TORCH, name) for name in ("__init__.py", "utils/deterministic.py")),
)


def is_asked_by_user(frame: types.FrameType | None) -> bool:
    """Tell whether users' code asks, directly or by what PyTorch has to ask for settings."""
    while frame is not None and frame.f_code.co_filename.startswith(_OF_SETTINGS):
        frame = frame.f_back
    return frame is not None and not is_library(frame.f_code.co_filename)


def is_own(filename: str) -> bool:
    """Tell whether a file is of hostjit, and none of those whose code is recorded as any is."""
    return filename.startswith(HOSTJIT) and not filename.startswith(_LAUNCHED)


def is_imported(frame: types.FrameType | None) -> bool:
    """Tell whether an import is under way, which happens once."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith("<frozen importlib"):
            return True
        if is_own(filename):
            return False
        frame = frame.f_back
    return False


def acts_for_library(frame: types.FrameType | None) -> bool:
    """Tell whether torch, hostjit or Triton called, directly or through the standard library."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith((TORCH, HOSTJIT, *triton_types.FOLDERS)):
            return True
        standard = filename.startswith((_STANDARD, "<frozen"))
        if not standard or filename.startswith(_PACKAGES):
            return False
        frame = frame.f_back
    return True


def is_library(filename: str) -> bool:
    """Tell whether a file is of torch, hostjit, NumPy, Triton or the standard library.

    What their code reads of their own globals is taken to stay.
    """
    return filename.startswith(_LIBRARIES) or is_of_standard_library(filename)


def is_of_standard_library(filename: str) -> bool:
    """Tell whether a file is of the standard library."""
    return filename.startswith(_STANDARD) and not filename.startswith(_PACKAGES)


def user_line(frame: types.FrameType | None = None) -> str:
    """Return "file:line" of the innermost frame that is no library's; "" if there is none."""
    frame = frame or sys._getframe(1)
    found: types.FrameType | None = frame
    while found is not None and is_library(found.f_code.co_filename):
        found = found.f_back
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found is not None else ""
