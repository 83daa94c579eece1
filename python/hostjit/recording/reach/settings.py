# SPDX-License-Identifier: Apache-2.0
"""Settings that C code reads and no name tells of: compared by what a function gives for them."""

from __future__ import annotations

import decimal
import functools
import locale
import re
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from hostjit.capturing.constants import IMMUTABLE_TYPES
from hostjit.capturing.instances import is_a
from hostjit.recording.reach.entries import Entry

__all__ = [
    "AUTOCAST",
    "LOCALE",
    "WARN",
    "WARNINGS",
    "Setting",
    "reader_of",
    "settings_behind",
    "settings_now",
]

AUTOCAST = "the dtypes of autocast"
LOCALE = "the locale"
WARNINGS = "the filters of warnings"
_DECIMAL = "the context of decimal"
_NUMPY = "how NumPy handles errors of floating point"
# Of C functions of PyTorch that tell of a setting.
_TELLS = re.compile(r"_?(get|is|has|are|check)_|_+(get|is|has|are|check)_")
_OF_THE_INTERPRETER: tuple[Any, ...] = (
    *(sys.getrecursionlimit, sys.getswitchinterval, sys.get_int_max_str_digits),
)
# These every call is compared by, as ThreadState has them.
_COMPARED = frozenset(
    {
        *("is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled"),
        *("is_autocast_cpu_enabled", "get_default_dtype", "_get_deterministic_algorithms"),
        *("_get_tracing_state", "_get_default_device", "_get_cpp_backtrace"),
    }
)


class Setting(Entry):
    """What a function without arguments tells. `expected`: what it told when the call began."""

    asked = True

    def __init__(self, path: str, read: Callable[[], Any], expected: Any) -> None:
        super().__init__(path)
        self._read = read
        self._expected = expected

    def differs(self) -> bool:
        return bool(self._read() != self._expected)


def _decimal_context() -> tuple[Any, ...]:
    context = decimal.getcontext()
    traps = tuple(context.traps.values())
    sizes = (context.prec, context.Emin, context.Emax, context.capitals, context.clamp)
    return (*sizes, context.rounding, traps)


def _error_handling() -> Any:
    numpy: Any = sys.modules.get("numpy")
    return None if numpy is None else (numpy.geterr(), numpy.geterrcall())


def _filters_that_raise() -> Any:
    filters = tuple(warnings.filters)
    return filters if any(kept[0] == "error" for kept in filters) else None


def _autocast_dtypes() -> tuple[torch.dtype, ...]:
    return torch.get_autocast_dtype("cpu"), torch.get_autocast_dtype("cuda")


_READERS: dict[str, Callable[[], Any]] = {
    _DECIMAL: _decimal_context,
    _NUMPY: _error_handling,
    WARNINGS: _filters_that_raise,
    LOCALE: functools.partial(locale.setlocale, locale.LC_ALL),
    AUTOCAST: _autocast_dtypes,
}
_OF_PACKAGES = {"decimal": (_DECIMAL,), "_decimal": (_DECIMAL,), "numpy": (_NUMPY, WARNINGS)}
WARN = frozenset({warnings.warn, warnings.warn_explicit})


def settings_now() -> dict[str, Setting]:
    """Read the settings that have a name, by name."""
    return {name: Setting(name, read, read()) for name, read in _READERS.items()}


def settings_behind(value: Any) -> tuple[str, ...]:
    """Return the names of the settings that code may depend on which can reach a value."""
    if is_a(value, types.ModuleType):
        module = vars(value).get("__name__")
    elif is_a(value, (type, types.FunctionType)):
        module = value.__module__
    else:
        module = type(value).__module__
    return _OF_PACKAGES.get(str(module).partition(".")[0], ())


def reader_of(function: Any) -> Callable[[], Any] | None:
    """Return a C function that tells of a setting which is not compared otherwise.

    None for another function, or one that takes arguments.
    """
    if type(function) is not types.BuiltinFunctionType:
        return None
    if function in _OF_THE_INTERPRETER:
        return function
    name = function.__name__
    if not _TELLS.match(name):
        return None
    if name in _COMPARED or not str(_module_of(function)).startswith("torch"):
        return None
    try:
        told = function()
    except Exception:
        return None
    return function if isinstance(told, IMMUTABLE_TYPES) else None


def _module_of(function: types.BuiltinFunctionType) -> Any:
    owner = function.__self__
    return owner.__name__ if isinstance(owner, types.ModuleType) else function.__module__
