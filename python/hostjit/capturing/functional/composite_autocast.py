# SPDX-License-Identifier: Apache-2.0
"""Autocast inside of composite operators, which dispatch modes meet below it.

In eager mode `torch.einsum` has no rule of its own, so that the products inside are cast. A mode
that takes it apart is called with autocast off, as everything below autocast is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._C import DispatchKey

__all__ = ["CompositeAutocast"]

_KEYS = {"cpu": DispatchKey.AutocastCPU, "cuda": DispatchKey.AutocastCUDA}


class CompositeAutocast:
    """Tells for which devices autocast is on where an operator is called that a mode meets."""

    def __init__(self) -> None:
        self._devices: tuple[str, ...] = ()

    def note(self) -> None:
        """Remember the thread's setting, ahead of an operator's call and above all modes."""
        self._devices = tuple(filter(torch.is_autocast_enabled, _KEYS))

    @contextlib.contextmanager
    def inside(self, operator: torch._ops.OpOverload) -> Iterator[None]:
        """Have what an operator is made of meet the setting that it meets in eager mode."""
        before = self._devices
        self._devices = tuple(device for device in before if _is_open_to(operator, device))
        for device in self._devices:
            torch.set_autocast_enabled(device, True)
        try:
            yield
        finally:
            for device in self._devices:
                torch.set_autocast_enabled(device, False)
            self._devices = before


def _is_open_to(operator: torch._ops.OpOverload, device: str) -> bool:
    """Whether autocast, having no rule for a composite operator, goes on inside of it."""
    is_composite = operator.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd)
    return is_composite and not operator.has_kernel_for_dispatch_key(_KEYS[device])
