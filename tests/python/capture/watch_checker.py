# SPDX-License-Identifier: Apache-2.0
"""A plain Python checker of watches, and of programs whose watched state is changed."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hostjit.capturing.capture import capture
from hostjit.capturing.guards import watches as w
from hostjit.capturing.program import CapturedProgram


def _contents(mapping: dict[Any, Any]) -> list[tuple[Any, int]]:
    return [(key, id(value)) for key, value in dict.items(mapping)]


def _class_contents(kind: type) -> list[tuple[str, int]]:
    return [(name, id(value)) for base in kind.__mro__ for name, value in vars(base).items()]


def _owner_holds(owner: Any, mapping: dict[Any, Any]) -> bool:
    return owner is None or owner.__dict__ is mapping


class WatchChecker:
    """Remembers the state of every watched object; `failed` names what has changed.

    It does what the C type does with version tags and pointers.
    """

    def __init__(self, watches: Sequence[w.Watch]) -> None:
        self._checks = [(watch, self._check_for(watch)) for watch in watches]

    def failed(self) -> list[w.Watch]:
        return [watch for watch, holds in self._checks if not holds()]

    @staticmethod
    def _check_for(watch: w.Watch) -> Callable[[], bool]:
        if isinstance(watch, w.DictVersion):
            before = _contents(watch.mapping)
            return lambda: (
                _contents(watch.mapping) == before and _owner_holds(watch.owner, watch.mapping)
            )
        if isinstance(watch, w.DictItems):
            return lambda: (
                _owner_holds(watch.owner, watch.mapping)
                and all(
                    dict.get(watch.mapping, key, w.MISSING) is expected
                    for key, expected in zip(watch.keys, watch.expected, strict=True)
                )
            )
        if isinstance(watch, w.CellContents):
            return lambda: watch.cell.cell_contents is watch.expected
        if isinstance(watch, w.ListItems):
            return lambda: (
                len(watch.list) == len(watch.items)
                and all(
                    expected is w.MISSING or item is expected
                    for item, expected in zip(watch.list, watch.items, strict=True)
                )
            )
        if isinstance(watch, w.SetItems):
            return lambda: len(watch.set) == len(watch.items) and set(watch.items) == set(watch.set)
        if isinstance(watch, w.TypeVersion):
            members = _class_contents(watch.type)
            return lambda: _class_contents(watch.type) == members
        if isinstance(watch, w.ObjectType):
            return lambda: type(watch.object) is watch.type
        if isinstance(watch, w.FunctionState):
            return lambda: (
                watch.function.__code__ is watch.code
                and watch.function.__defaults__ is watch.defaults
                and watch.function.__kwdefaults__ is watch.kwdefaults
            )
        if isinstance(watch, w.FunctionFields):
            fields = [getattr(watch.function, name) for name in watch.names]
            return lambda: all(
                getattr(watch.function, name) is was
                for name, was in zip(watch.names, fields, strict=True)
            )
        if isinstance(watch, w.AbstractClasses):
            return lambda: watch.token == abc.get_cache_token()
        if isinstance(watch, w.Slots):
            held = [member.__get__(watch.object) for member in watch.members]
            return lambda: all(
                member.__get__(watch.object) is was
                for member, was in zip(watch.members, held, strict=True)
            )
        if isinstance(watch, w.GradientState):
            owner, facts = watch.owner, watch.facts
            return lambda: owner.grad is None if facts is None else facts.matches(owner.grad)
        return lambda: watch.facts.matches(watch.tensor)


class Watched:
    """A captured program, a checker of its watches, and eager PyTorch to compare with."""

    def __init__(self, target: Any, *args: Any) -> None:
        self.target, self.args = target, args
        with torch.no_grad():
            self.program: CapturedProgram = capture(target, args)
        self.checker = WatchChecker(self.program.guards.watches)
        assert not self.program.guards.unwatchable
        assert not self.checker.failed()
        assert self.revalidate()
        assert not WatchChecker(self.program.guards.watches).failed()

    def revalidate(self) -> bool:
        with torch.no_grad():
            return self.program.revalidate(self.args, {})

    def is_right(self) -> bool:
        with torch.no_grad():
            expected = self.target(*self.args)
            return torch.allclose(self.program.run(*self.args), expected, atol=1e-6)

    def assert_invalid(self) -> None:
        assert self.checker.failed(), "no watch noticed the change"
        assert not self.revalidate(), "the full check did not notice the change"

    def assert_still_valid(self) -> None:
        """Whether or not a watch was alarmed, the program is valid and right."""
        assert self.revalidate() or not self.checker.failed()
        assert self.is_right()
        fresh = WatchChecker(self.program.guards.watches)
        assert not fresh.failed()
