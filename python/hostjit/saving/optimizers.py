# SPDX-License-Identifier: Apache-2.0
"""Optimizers whose steps are part of a file: what its programs assume of them.

A file works without one: then it has the parameters, the state and the numbers itself. Where an
optimizer is given at loading, its own are read and written, and what is constant in the programs
(`weight_decay`, which parameters there are) has to be as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hostjit import _C
from hostjit.optimizers.rules import Rule, rule_of
from hostjit.optimizers.step import Step
from hostjit.saving.names import Named
from hostjit.saving.values import Values, class_name

__all__ = ["GivenOptimizer", "bound_optimizers", "optimizers_to_json"]


def optimizers_to_json(
    optimizers: dict[str, torch.optim.Optimizer], objects: set[int]
) -> list[dict[str, Any]]:
    """Write the optimizers that programs step.

    `objects`: ids of the tensors and dicts that the programs know. Raises hostjit.Error for a
    constant that means something in this process only.
    """
    described: dict[int, dict[str, Any]] = {}
    for name, optimizer in optimizers.items():
        if id(optimizer) in described:
            described[id(optimizer)]["names"].append(name)
        elif rule_of(type(optimizer)) and not objects.isdisjoint(map(id, _stepped(optimizer))):
            described[id(optimizer)] = {
                "names": [name],
                "class": class_name(type(optimizer)),
                "groups": [
                    {
                        "params": len(group["params"]),
                        "constants": _constants(optimizer, group, Values()),
                    }
                    for group in optimizer.param_groups
                ],
            }
    return list(described.values())


def _stepped(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """What only programs know that make steps."""
    for group in optimizer.param_groups:
        yield group
        yield from (group[key] for key in group if key != "params")
    for state in optimizer.state.values():
        yield from state.values()


def _constants(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], values: Values
) -> dict[str, Any]:
    numbers = _rule(optimizer).numbers
    known = (key for key in optimizer.defaults if key in group and key not in numbers)
    return {key: values.to_json(group[key]) for key in known}


def _rule(optimizer: torch.optim.Optimizer) -> Rule:
    rule = rule_of(type(optimizer))
    assert rule is not None
    return rule


class GivenOptimizer:
    """One that a loaded function steps.

    Args:
        optimizer: of this process.
        described: what `optimizers_to_json` wrote.
        name: of the optimizer, for messages.

    Raises hostjit.Error unless it is like the one that was saved, and has made its state.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, described: dict[str, Any], name: str
    ) -> None:
        self._optimizer = optimizer
        self._described = described
        # What is called is not the loaded function itself, which may have replaced `step`.
        self._as_called = bool(name)
        what = f"optimizer '{name}'" if name else "the optimizer"
        if class_name(type(optimizer)) != described["class"] or rule_of(type(optimizer)) is None:
            kind = type(optimizer).__qualname__
            raise _C.Error(f"{what} is a {kind}, the saved one is '{described['class']}'")
        problem = self._difference() or self._obstacle()
        if problem:
            raise _C.Error(f"{what}: {problem}")
        self._objects = self._seen()

    def _step(self) -> Step:
        return Step(self._optimizer, _rule(self._optimizer), self._as_called)

    def _obstacle(self) -> str:
        step = self._step()
        params = [param for group in self._optimizer.param_groups for param in group["params"]]
        if step.is_unfinished() and any(param.grad is not None for param in params):
            return (
                "it has yet to make the state of a parameter: make a step with it, or load a "
                "state_dict into it, before"
            )
        return step.obstacle()

    def _difference(self) -> str:
        groups, expected = self._optimizer.param_groups, self._described["groups"]
        if len(groups) != len(expected):
            return f"it has {len(groups)} parameter groups, the saved one {len(expected)}"
        for index, (group, was) in enumerate(zip(groups, expected, strict=True)):
            if len(group["params"]) != was["params"]:
                found = len(group["params"])
                return f"group {index} has {found} parameters, the saved one {was['params']}"
            now = _constants(self._optimizer, group, Values())
            for key, value in was["constants"].items():
                if now.get(key) != value:
                    before = Values().from_json(value)
                    return f"'{key}' of group {index} is {group.get(key)}, the saved one {before}"
        return ""

    def _seen(self) -> list[Any]:
        """The parameters, and the state of those that have one: bound by reference."""
        params = [param for group in self._optimizer.param_groups for param in group["params"]]
        state = [self._optimizer.state.get(param, {}) for param in params]
        return [*params, *(value for one in state for value in one.values())]

    def is_current(self) -> bool:
        """Tell whether its next step is the saved one, on the tensors that were bound."""
        try:
            found = self._seen()
            if len(found) != len(self._objects) or self._difference():
                return False
            return not self._step().obstacle() and all(
                now is before for now, before in zip(found, self._objects, strict=True)
            )
        except (_C.Error, AttributeError, LookupError):
            return False

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what tells the call path that it is."""
        return [watch for watch in self._step().watches() if watch[0] != "no_gradient"]


def bound_optimizers(manifest: dict[str, Any], given: Named) -> dict[str, GivenOptimizer]:
    """Return those of a file that are given, by name.

    Raises hostjit.Error for one that differs from what was saved, or lacks what the programs take.
    """
    bound: dict[str, GivenOptimizer] = {}
    for entry in manifest["optimizers"]:
        name = next((name for name in entry["names"] if name in given.optimizers), None)
        if name is None:
            continue
        optimizer = given.optimizers[name]
        bound[name] = GivenOptimizer(optimizer, entry, name)
        prefix = f"{name}." if name else ""
        found: list[tuple[str, Any]] = [("tensors", given.tensors), ("numbers", given.numbers)]
        for kind, has in found:
            for names in (described["names"] for described in manifest[kind]):
                lacks = [other for other in names if _is_part(other, prefix) and other not in has]
                if lacks and has.keys().isdisjoint(names):
                    raise _C.Error(
                        f"the optimizer has no '{lacks[0]}' yet, or another kind of it: make a "
                        "step with it, or load a state_dict into it, before"
                    )
        for described in manifest["tensors"]:
            for other in described["names"]:
                tensor = given.tensors.get(other) if _is_part(other, prefix) else None
                if tensor is not None and tensor.requires_grad != described["requires_grad"]:
                    needs = "needs a" if tensor.requires_grad else "needs no"
                    raise _C.Error(f"'{other}' {needs} gradient, which is not as it was saved")
        # What a schedule looks at, to see that steps are made.
        optimizer._opt_called = True  # type: ignore[attr-defined]
    return bound


def _is_part(name: str, prefix: str) -> bool:
    return name.startswith((f"{prefix}state[", f"{prefix}param_groups["))
