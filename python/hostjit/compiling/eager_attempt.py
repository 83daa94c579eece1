# SPDX-License-Identifier: Apache-2.0
"""Calls of which the capture says that they raise: eager has the last word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostjit import _C

__all__ = ["EagerAttempt"]


class EagerAttempt:
    """Runs calls of one signature eagerly.

    When they raise, as the capture said, so do the next ones, without a capture; the first that
    does not is the sign that something has changed, and the next one is captured again. When the
    very first does not raise, the capture was wrong, and stays so.

    Args:
        target: what is called.
        captured_wrongly: called after a very first call that does not raise; returns what runs the
            next ones.
    """

    def __init__(
        self, target: Callable[..., Any], captured_wrongly: Callable[[], Callable[..., Any]]
    ) -> None:
        self._run = target
        self._captured_wrongly: Callable[[], Callable[..., Any]] | None = captured_wrongly
        self._has_raised = False
        self._state = [True]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self._run(*args, **kwargs)
        except BaseException:
            self._has_raised = True
            raise
        if self._has_raised:
            self._state[0] = False
        elif self._captured_wrongly is not None:
            self._run, self._captured_wrongly = self._captured_wrongly(), None
        return result

    def specialization(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.Specialization | None:
        """Return what answers calls like this one; None if no guard can describe them."""
        try:
            return _C.Specialization(
                args=args,
                kwargs=kwargs,
                program=None,
                bindings=(),
                output=("object", None),
                watches=[("list", self._state, (True,))],
                route=self,
            )
        except (RuntimeError, TypeError):
            return None
