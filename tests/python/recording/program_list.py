# SPDX-License-Identifier: Apache-2.0
"""Programs that are run beside themselves: eagerly, and with their functions captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
