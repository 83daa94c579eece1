# SPDX-License-Identifier: Apache-2.0
"""The thread's settings that a trace may change: kept through it, whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.backends import cuda as attention_settings

__all__ = ["ThreadState", "thread_state_kept"]

_DEVICES = ("cpu", "cuda")
_torch: Any = torch._C  # has more than its stubs say
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")


@dataclasses.dataclass(frozen=True)
class ThreadState:
    """What PyTorch's contexts and setters change; inference mode and dispatch keys aside.

    Attributes:
        grad: whether gradients are recorded.
        autocast: for each device, whether it is on, and its dtype.
        autocast_cache: whether autocast keeps what it has converted.
        autocast_nesting: the number of autocast contexts; the cache is cleared when the last ends.
        deterministic: whether algorithms are, and whether those that are not only warn.
        default_dtype: of new tensors.
        attention: the implementations of attention that are allowed.
        attention_order: their order of preference.
        transforms: how many of `torch.func` are under way, one inside of the other.
        dual_level: the innermost level of forward-mode differentiation; -1 if there is none.
        hooks_refused: what is said to those who set hooks on saved tensors; None if they may.
    """

    grad: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]
    autocast_cache: bool
    autocast_nesting: int
    deterministic: tuple[bool, bool]
    default_dtype: torch.dtype
    attention: tuple[bool, ...]
    attention_order: tuple[int, ...]
    transforms: int
    dual_level: int
    hooks_refused: str | None

    @classmethod
    def current(cls) -> ThreadState:
        """Read it."""
        torch.autocast_increment_nesting()
        return cls(
            grad=torch.is_grad_enabled(),
            autocast=tuple(
                (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
                for device in _DEVICES
            ),
            autocast_cache=torch.is_autocast_cache_enabled(),
            autocast_nesting=torch.autocast_decrement_nesting(),
            deterministic=(
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            default_dtype=torch.get_default_dtype(),
            attention=tuple(
                getattr(attention_settings, f"{name}_sdp_enabled")() for name in _ATTENTION
            ),
            attention_order=tuple(_attention_order()),
            transforms=_torch._functorch.get_dynamic_layer_stack_depth(),
            dual_level=forward_ad._current_level,
            hooks_refused=_torch._autograd._saved_tensors_hooks_get_disabled_error_message(),
        )

    def restore(self) -> None:
        """Make it what it was; what has not changed is left alone."""
        now = ThreadState.current()
        if now == self:
            return
        # First: the end of a transform switches gradients as they were at its beginning.
        _end_transforms(self.transforms)
        while forward_ad._current_level > self.dual_level:
            forward_ad.exit_dual_level()
        if self.hooks_refused is None:
            _torch._autograd._saved_tensors_hooks_enable()
        else:
            _torch._autograd._saved_tensors_hooks_disable(self.hooks_refused)
        torch._C._set_grad_enabled(self.grad)
        for device, (enabled, dtype) in zip(_DEVICES, self.autocast, strict=True):
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(self.autocast_cache)
        _set_autocast_nesting(now.autocast_nesting, self.autocast_nesting)
        enabled, warn_only = self.deterministic
        torch._C._set_deterministic_algorithms(enabled, warn_only=warn_only)
        torch.set_default_dtype(self.default_dtype)
        for name, allowed in zip(_ATTENTION, self.attention, strict=True):
            getattr(attention_settings, f"enable_{name}_sdp")(allowed)
        if now.attention_order != self.attention_order:
            _torch._set_sdp_priority_order(list(self.attention_order))

    def restore_after_error(self) -> None:
        """As `restore`, and end a level of forward-mode differentiation that a graph began.

        Such a level is not counted where Python code reads its number.
        """
        self.restore()
        if self.dual_level < 0 and forward_ad._current_level < 0:
            with contextlib.suppress(RuntimeError):  # there is none
                _torch._exit_dual_level(level=0)


def _end_transforms(depth: int) -> None:
    """End the transforms under way but the first `depth` ones, the innermost first.

    `pop_dynamic_layer_stack_and_undo_to_depth` fails for those of forward mode in torch 2.11.
    """
    functorch = _torch._functorch
    kinds = functorch.TransformType
    ends = {
        kinds.Vmap: functorch._vmap_decrement_nesting,
        kinds.Grad: functorch._grad_decrement_nesting,
        kinds.Jvp: functorch._jvp_decrement_nesting,
        kinds.Functionalize: functorch._func_decrement_nesting,
    }
    while functorch.get_dynamic_layer_stack_depth() > depth:
        ends[functorch.peek_interpreter_stack().key()]()


def _attention_order() -> list[int]:
    return list(_torch._get_sdp_priority_order())


def _set_autocast_nesting(found: int, wanted: int) -> None:
    for _ in range(found, wanted):
        torch.autocast_increment_nesting()
    for _ in range(wanted, found):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


@contextlib.contextmanager
def thread_state_kept() -> Iterator[None]:
    """Leave the thread's settings as they were found, also when the body raises.

    A trace runs the statements of a graph that enter contexts. When an operator in between raises,
    those that leave them do not run. Guards in variables of frames that the error went through end
    here, too: they would put back what they found whenever the last reference to the error goes.
    """
    state = ThreadState.current()
    with torch._C._PreserveDispatchKeyGuard():
        try:
            yield
        except BaseException as error:
            _clear_frames(error)
            state.restore_after_error()
            raise
        state.restore()


def _clear_frames(error: BaseException | None) -> None:
    """Forget the variables of frames that have ended, of an error and of those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
