# SPDX-License-Identifier: Apache-2.0
"""Programs that are run beside themselves: eagerly, and with their functions captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Program", "Programs", "Step", "Wrap"]

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
# One round of the program, by its number: returns all that can be seen of it.
Step = Callable[[int], Any]
Program = Callable[[Wrap], Step]


class Programs(dict[str, Program]):
    """Programs by name: each wraps what is to be captured, and returns its step."""

    def register(self, program: Program) -> Program:
        """Add a program; a decorator."""
        self[program.__name__] = program
        return program

    def changes(
        self,
        name: str,
        function: Callable[..., Any],
        set_to: Callable[[Any], Any],
        before: Any,
        now: Any,
        *others: Any,
    ) -> None:
        """Add a program that calls `set_to(now)` in the middle, and `set_to(before)` at its ends.

        `function` is called with a tensor of two elements and `others`; an error is its result.
        """

        def program(wrap: Wrap) -> Step:
            set_to(before)
            wrapped = wrap(function)

            def step(number: int) -> Any:
                if number == 4:
                    set_to(now)
                try:
                    return wrapped(torch.randn(2), *others)
                except (ArithmeticError, LookupError, ValueError, Warning) as error:
                    return torch.tensor(len(type(error).__name__))
                finally:
                    if number == 8:
                        set_to(before)

            return step

        assert name not in self
        self[name] = program
