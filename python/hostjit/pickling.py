# SPDX-License-Identifier: Apache-2.0
"""Compiled functions, copied and pickled: compiled code does not travel, a copy compiles anew."""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Callable
from typing import Any

from hostjit import _C

__all__ = ["register"]


def register() -> None:
    """Tell pickle and copy what a compiled function is."""
    copyreg.pickle(_C.CompiledFunction, _reduce)
    copyreg.pickle(_C.CompiledContainer, _reduce)


def _reduce(compiled: _C.CompiledFunction) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    """A global of this name is pickled by name, as functions are; any other by what it compiles."""
    name = getattr(compiled, "__qualname__", None)
    if isinstance(name, str) and _global(compiled.__module__, name) is compiled:
        return name
    target, keywords = compiled.owner.arguments()
    return (_capture if compiled.owner.records else _compile), (target, keywords)


def _global(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _compile(target: Any, keywords: dict[str, Any]) -> Any:
    from hostjit.compile import compile

    return compile(target, **keywords)


def _capture(target: Any, keywords: dict[str, Any]) -> Any:
    from hostjit.recording import capture

    return capture(target, **keywords)
