# SPDX-License-Identifier: Apache-2.0
"""The state of the default generator, which a recorded call reads and sets: checkpoints do.

Operators of hostjit read and set it in the order in which the program draws.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hostjit.recording.recorder import Recorder

__all__ = ["note_state", "passes_states"]

_library = torch.library.Library("hostjit", "FRAGMENT")
for _schema in ("random_state() -> Tensor", "set_random_state(Tensor state) -> ()"):
    _library.define(_schema, tags=(torch.Tag.nondeterministic_seeded,))

_READ = torch.random.get_rng_state.__code__
_SET = torch.random.set_rng_state.__code__


def passes_states(code: types.CodeType) -> bool:
    """Tell whether code does nothing but to read or to set the state of the default generator."""
    return code is _READ or code is _SET


def note_state(recorder: Recorder, frame: types.FrameType, returned: Any) -> None:
    """Record that code, which is about to return something, has read or set the state."""
    with torch._C.DisableTorchFunction():
        if frame.f_code is _READ and isinstance(returned, Tensor):
            node = recorder.call(torch.ops.hostjit.random_state.default, (), {})
            recorder.note(returned, node)
        elif frame.f_code is _SET:
            state = frame.f_locals["new_state"]
            known = recorder.node_of(state) if isinstance(state, Tensor) else None
            if known is None:
                recorder.refuse("it sets a state of random numbers that was made elsewhere")
            else:
                recorder.call(torch.ops.hostjit.set_random_state.default, (known,), {})


def _state() -> Tensor:
    return torch.default_generator.get_state()


def _fake_state() -> Tensor:
    size = torch.default_generator.get_state().numel()
    return torch.empty(size, dtype=torch.uint8, device="cpu")


def _set_state(state: Tensor) -> None:
    torch.default_generator.set_state(state)


for _key in ("BackendSelect", "CompositeExplicitAutograd"):
    torch.library.impl(_library, "random_state", _key)(_state)
torch.library.impl(_library, "set_random_state", "CompositeExplicitAutograd")(_set_state)
torch.library.register_fake("hostjit::random_state", _fake_state, lib=_library)
torch.library.register_fake("hostjit::set_random_state", lambda state: None, lib=_library)
