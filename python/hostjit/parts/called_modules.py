# SPDX-License-Identifier: Apache-2.0
"""Functions that run as Python, while the modules that they call are compiled.

Such are those in which NumPy computes: its types and values are its own. What takes the time there
is mostly a module, which takes tensors.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from torch import nn
from torch._dynamo import OptimizedModule
from torch.jit import ScriptModule

from hostjit import _C

__all__ = ["WithCompiledModules"]

# What a module without it has of its class, and calls instead of itself if it is set.
_CALL = "_compiled_call_impl"
_CALL_CODE: types.CodeType = nn.Module.__call__.__code__
_OF_OTHERS = (ScriptModule, OptimizedModule)
# Calls that are looked at: the first ones, and then each of so many while none called a module.
_LOOKED_AT = 8
_SELDOM = 16
_MOST_MODULES = 32


class WithCompiledModules:
    """Calls a function, with compiled code in place of the modules that earlier calls called."""

    def __init__(self, target: Callable[..., Any], compile_call: Callable[[Any], Any]) -> None:
        """Take a function.

        Args:
            target: the function.
            compile_call: compiles what calls one of the modules.
        """
        self._target = target
        self._compile_call = compile_call
        # Replaced, not changed: other threads may be at it.
        self._compiled: tuple[tuple[dict[str, Any], _C.CompiledFunction], ...] = ()
        self._calls = 0
        self._next_look = 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        self._calls += 1
        if self._calls >= self._next_look:
            return self._look(args, kwargs)
        return self._run(args, kwargs)

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seen: Callable[[_C.CompiledFunction], Callable[..., Any]] | None = None,
    ) -> Any:
        given: list[dict[str, Any]] = []
        for state, compiled in self._compiled:
            if _CALL not in state:
                state[_CALL] = compiled if seen is None else seen(compiled)
                given.append(state)
        try:
            return self._target(*args, **kwargs)
        finally:
            for state in given:
                state.pop(_CALL, None)

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call, and compile the modules that it calls from the next call on."""
        if self._calls < _LOOKED_AT:
            self._next_look = self._calls + 1
        else:
            self._next_look = self._calls * 2 if self._compiled else self._calls + _SELDOM
        if sys.getprofile() is not None:  # somebody else looks
            return self._run(args, kwargs)
        called = _Called(self._target)
        sys.setprofile(called.note)
        try:
            return self._run(args, kwargs, called.unseen)
        finally:
            sys.setprofile(None)
            for module in called.modules.values():
                state = module.__dict__
                is_known = any(known is state for known, _ in self._compiled)
                if len(self._compiled) < _MOST_MODULES and not is_known:
                    self._compiled += ((state, self._compile_call(module._call_impl)),)


class _Called:
    """Notes which modules are called by code that is of no module, or of the function alone."""

    def __init__(self, target: Callable[..., Any]) -> None:
        self.modules: dict[int, nn.Module] = {}
        self._target = target
        self._inside = 0

    def note(self, frame: types.FrameType, event: str, _: Any) -> None:
        """Note what the interpreter tells of a frame."""
        if frame.f_code is not _CALL_CODE or event not in ("call", "return"):
            return
        module = frame.f_locals["self"]
        if module is self._target:
            return
        if event == "return":
            self._inside -= 1
            return
        if not self._inside and _CALL not in module.__dict__ and not isinstance(module, _OF_OTHERS):
            self.modules[id(module)] = module
        self._inside += 1

    def unseen(self, compiled: _C.CompiledFunction) -> Callable[..., Any]:
        """Return what runs a compiled module without telling of its frames.

        It may compile, which takes twice as long while the interpreter tells of each frame.
        """

        def run(*args: Any, **kwargs: Any) -> Any:
            sys.setprofile(None)
            try:
                return compiled(*args, **kwargs)
            finally:
                sys.setprofile(self.note)

        return run
