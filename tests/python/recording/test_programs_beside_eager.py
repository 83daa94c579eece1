# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them: nine rounds with changing inputs, captured and eagerly."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import programs_of_changes
import programs_of_classes
import programs_of_data
import programs_of_definitions
import programs_of_graphs
import programs_of_lookups
import programs_of_modes
import programs_of_modules
import programs_of_objects
import programs_of_readers
import programs_of_settings
import programs_of_sizes
import programs_of_state
import programs_of_training
import programs_of_values
import pytest
import torch
from program_list import Program, Programs
from torch.testing import assert_close
from torch.utils._pytree import tree_map

import hostjit

PROGRAMS: Programs = Programs(
    {
        **programs_of_changes.PROGRAMS,
        **programs_of_classes.PROGRAMS,
        **programs_of_data.PROGRAMS,
        **programs_of_definitions.PROGRAMS,
        **programs_of_graphs.PROGRAMS,
        **programs_of_lookups.PROGRAMS,
        **programs_of_modes.PROGRAMS,
        **programs_of_modules.PROGRAMS,
        **programs_of_objects.PROGRAMS,
        **programs_of_readers.PROGRAMS,
        **programs_of_settings.PROGRAMS,
        **programs_of_sizes.PROGRAMS,
        **programs_of_state.PROGRAMS,
        **programs_of_training.PROGRAMS,
        **programs_of_values.PROGRAMS,
    }
)
# These change Python objects, read what no guard is about, or have effects around what may raise.
RUN_EAGERLY = frozenset(
    {
        *("replay_buffer_int", "running_stats"),
        *("deque_state", "python_list_state", "thread_name", "set_shared_tensor"),
        *("try_with_effects", "try_random", "lru_cleared", "arg_attr", "arg_is_leaf"),
        *("arg_is_view", "arg_pinned_shared"),
        *("weakref_dies", "weak_dict", "weak_set", "dunder_import", "exception"),
        *("lock",),
        *programs_of_changes.RUN_EAGERLY,
        *programs_of_definitions.RUN_EAGERLY,
        *programs_of_graphs.RUN_EAGERLY,
        *programs_of_modes.RUN_EAGERLY,
        *programs_of_modules.RUN_EAGERLY,
        *programs_of_readers.RUN_EAGERLY,
        *programs_of_values.RUN_EAGERLY,
    }
)
_ROUNDS = 9


def _run(program: Program, runtime: str | None) -> tuple[list[Any], list[Any]]:
    """Return what each round gives, with the state of the generator, and the last recordings."""
    captured: list[Any] = []

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        if runtime is None:
            return function
        captured.append(hostjit.capture(function, runtime=runtime))
        return captured[-1]

    def seen(value: Any) -> Any:
        return value.detach().clone() if isinstance(value, torch.Tensor) else copy.copy(value)

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = program(wrap)
        rounds = []
        for number in range(_ROUNDS):
            torch.manual_seed(100 + number)
            rounds.append((tree_map(seen, step(number)), torch.get_rng_state()))
    # Before the program's objects go, and recordings with them.
    return rounds, [function.captured for function in captured]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_program_does_what_it_does_eagerly(name: str, runtime: str) -> None:
    expected, _ = _run(PROGRAMS[name], None)
    found, recordings = _run(PROGRAMS[name], runtime)
    for (value, generator), (wanted, wanted_generator) in zip(found, expected, strict=True):
        assert_close(value, wanted, rtol=2e-4, atol=1e-5, equal_nan=True, check_stride=True)
        assert torch.equal(generator, wanted_generator)
    assert (recordings[0] is None) == (name in RUN_EAGERLY)
