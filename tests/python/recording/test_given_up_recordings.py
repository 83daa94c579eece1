# SPDX-License-Identifier: Apache-2.0
"""Recordings of calls that no replay repeats: what such a call can reach is not looked at then."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit
from hostjit.recording.reach import reached
from hostjit.recording.reach.state import State
from hostjit.replacements import replaced_attribute


class Registry(dict[str, float]):
    def get(self, name: str) -> float:  # type: ignore[override]
        return super().get(name, 2.0)


REGISTRY = Registry()


def helped(x: Tensor) -> Tensor:
    return x + 1


def function(x: Tensor) -> Tensor:
    return helped(x * REGISTRY.get("gain"))


@pytest.mark.parametrize(("many", "is_visited"), [(0, False), (3000, True)])
def test_code_behind_what_no_replay_repeats(
    many: int, is_visited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: set[types.CodeType] = set()
    add_code = State.add_code

    def add(self: Any, code: types.CodeType, variables: dict[str, Any]) -> None:
        visited.add(code)
        add_code(self, code, variables)

    monkeypatch.setattr(reached, "_MANY_ENTRIES", many)
    fast = hostjit.capture(function)
    x = torch.ones(3)
    with replaced_attribute(State, "add_code", add):
        assert torch.equal(fast(x), x * 2 + 1)
        with pytest.warns(UserWarning, match="calls 'get', which a replay cannot repeat"):
            assert torch.equal(fast(x), x * 2 + 1)
    assert function.__code__ in visited
    assert (helped.__code__ in visited) == is_visited
    REGISTRY["gain"] = 3.0
    assert torch.equal(fast(x), x * 3 + 1)
    del REGISTRY["gain"]


COUNTER = iter(range(10**9))
SCALE = 2.0


def reads_all_globals(x: Tensor) -> Tensor:
    return x * float(globals()["SCALE"])


@pytest.mark.parametrize(("many", "is_all_visited"), [(0, False), (10**9, True)])
def test_objects_behind_what_no_replay_repeats(
    many: int, is_all_visited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`globals()` reaches all that is imported, for seconds."""
    states: list[State] = []

    class Seen(State):
        def __init__(self) -> None:
            super().__init__()
            states.append(self)

    monkeypatch.setattr(reached, "_MANY_ENTRIES", many)
    monkeypatch.setattr(reached, "_MOST_OBJECTS", 2000)
    monkeypatch.setattr("hostjit.recording.running.run.State", Seen)
    fast = hostjit.capture(reads_all_globals)
    x = torch.ones(3)
    assert torch.equal(fast(x), x * 2)
    with pytest.warns(UserWarning, match="'reads_all_globals' runs eagerly: it can reach "):
        assert torch.equal(fast(x), x * 2)
    assert all(state.gave_up for state in states)
    assert (max(len(state.objects) for state in states) > 2000) == is_all_visited
