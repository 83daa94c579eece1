# SPDX-License-Identifier: Apache-2.0
"""States of generators: the default one's, which checkpoints read and set, and seeds of any.

Operators of hostjit read, set and seed the default one in the order in which the program draws.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hostjit.recording.running.generator_draws import address_of, signed

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["KEPT", "note_state", "passes_states", "seeds"]

_library = torch.library.Library("hostjit", "FRAGMENT")
for _schema in (
    "random_state() -> Tensor",
    "set_random_state(Tensor state) -> ()",
    "set_random_state.kept(Tensor state) -> Tensor",
    "seed_random_state(int seed) -> ()",
    "seed_random_state.kept(int seed) -> Tensor",
    "draw_seed.kept(int number, int seed) -> Tensor",
):
    _library.define(_schema, tags=(torch.Tag.nondeterministic_seeded,))

# The same with an empty result: what has none is lost where a backward graph is parted from one.
KEPT = {
    operator.default: operator.kept
    for operator in (
        torch.ops.hostjit.set_random_state,
        torch.ops.hostjit.seed_random_state,
        torch.ops.hostjit.draw_seed,
    )
}

_READ = torch.random.get_rng_state.__code__
_SET = torch.random.set_rng_state.__code__


def passes_states(code: types.CodeType) -> bool:
    """Tell whether code does nothing but to read or to set the state of the default generator."""
    return code is _READ or code is _SET


def seeds(frame: types.FrameType, function: Any) -> bool:
    """Tell whether code calls `manual_seed` of a generator of the CPU, and of no other with it."""
    owner = getattr(function, "__self__", None)
    if not isinstance(owner, torch.Generator) or function.__name__ != "manual_seed":
        return False
    if owner.device.type != "cpu":
        return False
    # `torch.manual_seed` seeds those of all devices, some of them later.
    is_of_all = frame.f_code.co_filename == torch.random.__file__
    return not (is_of_all and torch.accelerator.is_available())


def note_state(recorder: Recorder, frame: types.FrameType, returned: Any) -> None:
    """Record that code has read, set or seeded the state.

    `returned`: what code is about to return, or the function of C code that has returned to it.
    """
    with torch._C.DisableTorchFunction():
        if seeds(frame, returned):
            if address_of(returned.__self__) != address_of(torch.default_generator):
                recorder.note_seed(returned.__self__)
                return
            seed = signed(torch.default_generator.initial_seed())
            recorder.call(torch.ops.hostjit.seed_random_state.default, (seed,), {})
        elif frame.f_code is _READ and isinstance(returned, Tensor):
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


def _seed_state(seed: int) -> None:
    torch.default_generator.manual_seed(seed % (1 << 64))


def _kept(operator: Any) -> Callable[..., Tensor]:
    def run(*args: Any) -> Tensor:
        operator(*args)
        return _empty()

    return run


def _empty(*_: Any) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device="cpu")


def _nothing(*_: Any) -> None:
    return None


_implementations: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "random_state": (_state, _fake_state),
    "set_random_state": (_set_state, _nothing),
    "seed_random_state": (_seed_state, _nothing),
    **{kept.name().removeprefix("hostjit::"): (_kept(op), _empty) for op, kept in KEPT.items()},
}
for _name, (_run, _fake) in _implementations.items():
    for _key in ("BackendSelect", "CompositeExplicitAutograd"):
        torch.library.impl(_library, _name, _key)(_run)
    torch.library.register_fake(f"hostjit::{_name}", _fake, lib=_library)
