# SPDX-License-Identifier: Apache-2.0
"""Has Triton ask recordings ahead of a launch, as long as there are any."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

__all__ = ["Listener", "listen", "stop"]


class Listener(Protocol):
    """Who launches instead of Triton."""

    def launch(
        self,
        run: Callable[..., Any],
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        *,
        warmup: bool,
    ) -> Any:
        """Launch a function of `@triton.jit` by Triton's own `run`."""

    def measure(self, measured: Callable[[], Any]) -> Any:
        """Have Triton measure a configuration."""


_lock = threading.Lock()
_listeners: dict[TorchDispatchMode, Listener] = {}
_originals: list[tuple[type, str, Callable[..., Any]]] = []


def listen(mode: TorchDispatchMode, listener: Listener) -> None:
    """Tell a listener of what runs where a mode sees it: in its thread, outside of operators."""
    with _lock:
        _listeners[mode] = listener
        _replace()


def stop(mode: TorchDispatchMode) -> None:
    """Take back `listen`."""
    with _lock:
        del _listeners[mode]
        while _originals and not _listeners:
            kind, name, original = _originals.pop()
            setattr(kind, name, original)


def _replace() -> None:
    """Replace methods of Triton; where it isn't imported, there is nothing to launch yet."""
    jit, tuner = (sys.modules.get(f"triton.runtime.{name}") for name in ("jit", "autotuner"))
    if _originals or jit is None or tuner is None or not hasattr(tuner.Autotuner, "_bench"):
        return
    kinds = ((jit.JITFunction, "run", _asking_to_run), (tuner.Autotuner, "_bench", _asking))
    for kind, name, make in kinds:
        original = vars(kind)[name]
        _originals.append((kind, name, original))
        setattr(kind, name, make(original))


def _current() -> Listener | None:
    found = (_listeners.get(mode) for mode in reversed(_get_current_dispatch_mode_stack()))
    return next((listener for listener in found if listener is not None), None)


def _asking_to_run(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        listener = _current()
        if listener is None:
            return original(function, *args, grid=grid, warmup=warmup, **kwargs)
        return listener.launch(original, function, args, kwargs, grid, warmup=warmup)

    return run


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def measure(*args: Any, **kwargs: Any) -> Any:
        listener = _current()
        if listener is None:
            return original(*args, **kwargs)
        return listener.measure(lambda: original(*args, **kwargs))

    return measure
