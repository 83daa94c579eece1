# SPDX-License-Identifier: Apache-2.0
"""The modes of PyTorch that a specialization answers calls under."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["in_modes", "modes_to_json", "modes_to_text", "process_modes"]

_AUTOCAST = {"autocast_cpu": "cpu", "autocast_cuda": "cuda"}


def modes_to_json(modes: dict[str, Any]) -> dict[str, Any]:
    """Return what `_C.Specialization.describe` says of modes, without this version's words."""
    described = {name: value for name, value in modes.items() if name != "words"}
    for name in ("default_dtype", *_AUTOCAST):
        value = described[name]
        described[name] = None if value is None else str(value).removeprefix("torch.")
    return described


@contextlib.contextmanager
def in_modes(modes: dict[str, Any]) -> Iterator[None]:
    """Put this thread into modes that are not those of the process."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(bool(modes["inference"])))
        stack.enter_context(torch.set_grad_enabled(bool(modes["gradients"])))
        for name, device in _AUTOCAST.items():
            stack.enter_context(_autocast(device, modes[name]))
        stack.enter_context(_default_device(modes.get("default_device")))
        yield


def process_modes(modes: dict[str, Any]) -> tuple[bool, torch.dtype]:
    """Return those of the process, as `_C.Specialization` takes them."""
    dtype = getattr(torch, modes["default_dtype"])
    return bool(modes["deterministic"]), dtype


def modes_to_text(modes: dict[str, Any]) -> str:
    """Return modes in words."""
    if modes["inference"]:
        words = [
            "in inference mode" if not modes["gradients"] else "in inference mode, gradients on"
        ]
    else:
        words = ["gradients enabled" if modes["gradients"] else "gradients disabled"]
    if modes["deterministic"]:
        words.append("deterministic algorithms")
    if modes["default_dtype"] != "float32":
        words.append(f"default dtype {modes['default_dtype']}")
    for name, device in _AUTOCAST.items():
        if modes[name] is not None:
            words.append(f"autocast to {modes[name]} on {device}")
    if modes.get("default_device") is not None:
        words.append(f"new tensors on {modes['default_device']}")
    return ", ".join(words)


@contextlib.contextmanager
def _default_device(device: str | None) -> Iterator[None]:
    """Have new tensors on a device, or where they are without a default, whatever it is now."""
    with contextlib.ExitStack() as stack:
        for _ in range(torch._C._len_torch_function_stack()):
            stack.enter_context(torch.overrides._pop_mode_temporarily())
        if device is not None:
            stack.enter_context(torch.device(device))
        yield


@contextlib.contextmanager
def _autocast(device: str, dtype: str | None) -> Iterator[None]:
    enabled, before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, dtype is not None)
    try:
        if dtype is not None:
            torch.set_autocast_dtype(device, getattr(torch, dtype))
        yield
    finally:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, before)
