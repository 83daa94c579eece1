# SPDX-License-Identifier: Apache-2.0
"""One registered rule per operator overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

__all__ = ["Registry", "lowers"]

R = TypeVar("R", bound=Callable[..., Any])


class Registry(Generic[R]):
    """A table from operator overloads to rules.

    Example:
        lowers = Registry("lowering rule")

        @lowers("aten.mm.default")
        def lower_mm(context, node): ...

        lowers.find(torch.ops.aten.mm.default)
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._rules: dict[str, R] = {}
        # The text of an overload is made anew at each look.
        self._by_overload: dict[torch._ops.OpOverload, R | None] = {}

    def __call__(self, *overloads: str) -> Callable[[R], R]:
        """Register the decorated rule for operator overloads such as "aten.add.Tensor"."""

        def register(rule: R) -> R:
            for overload in overloads:
                if overload in self._rules:
                    raise ValueError(f"'{overload}' already has a {self.what}")
                self._rules[overload] = rule
            self._by_overload.clear()
            return rule

        return register

    def find(self, target: object) -> R | None:
        """The rule of an fx node's target; None where there is none."""
        if not isinstance(target, torch._ops.OpOverload):
            return self._rules.get(str(target))
        if target not in self._by_overload:
            self._by_overload[target] = self._rules.get(str(target))
        return self._by_overload[target]

    def names(self) -> list[str]:
        """The overloads that have a rule, sorted."""
        return sorted(self._rules)


# Rules that write Host IR for one node. A node with neither such a rule nor a pointwise one
# becomes an ATen call.
lowers: Registry[Callable[..., Any]] = Registry("lowering rule")
