# SPDX-License-Identifier: Apache-2.0
"""Imports of Dynamo, which take as long as that of torch: when they are, and what they are told."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from hostjit.collection_pause import collection_paused
from hostjit.deferred_signals import signals_deferred

__all__ = ["import_compiler", "when_dynamo_is_imported", "without_dynamo"]

_DYNAMO = "torch._dynamo"
_COMPILER = ("hostjit.compiling.compilation", "hostjit.capturing.capture", "hostjit.lowering.lower")


def import_compiler() -> None:
    """Import what compiles, and Dynamo with it, unless that has been done.

    Functions that were loaded from files run without; what is not needed is not waited for.
    """
    if _COMPILER[-1] not in sys.modules:
        with signals_deferred(), collection_paused(lasting=True):
            for name in _COMPILER:
                importlib.import_module(name)


def without_dynamo(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Return a function that Dynamo stops in front of; `torch.compiler.disable` would import it.

    Args:
        function: to be called.
        reason: for PyTorch's messages.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        dynamo = sys.modules.get(_DYNAMO)
        run = function if dynamo is None else dynamo.disable(function)
        return run(*args, **kwargs)

    marked: Any = call
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = reason
    return call


def when_dynamo_is_imported(tell: Callable[[], None]) -> None:
    """Call a function behind the import of Dynamo, whoever imports it; now if it has been."""
    if _DYNAMO in sys.modules:
        tell()
    else:
        sys.meta_path.insert(0, _Finder(tell))


class _Finder:
    """Finds Dynamo as Python does, until its module has run: then calls a function."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _DYNAMO:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = None if spec is None else spec.loader
        if loader is None:
            return None
        run = loader.exec_module

        def run_and_tell(module: types.ModuleType) -> None:
            del loader.exec_module  # its class's is seen again
            run(module)
            sys.meta_path.remove(self)
            self._tell()

        loader.exec_module = run_and_tell  # type: ignore[method-assign]
        return spec
