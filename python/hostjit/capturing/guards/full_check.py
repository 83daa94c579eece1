# SPDX-License-Identifier: Apache-2.0
"""The full check of what a program assumes, which decides when a watch has failed."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.dynamo.call import DynamoCapture
from hostjit.capturing.dynamo.guarded_classes import token_of
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.guards.behaviour import Behaviour
from hostjit.capturing.guards.library import functions_now, replaced_attribute_of_tensors
from hostjit.capturing.guards.translation import Guards, LeftOpen

__all__ = ["GuardCheck"]

# Guards that are found again more often than this may be so at every call.
_FEW = 3


class GuardCheck:
    """Whether what a program assumes beyond its arguments and the global state is still so.

    Attributes:
        guards: what that is, as it was found last.
    """

    def __init__(
        self,
        traced: DynamoCapture,
        left_open: LeftOpen,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        """Take what is found at the call that was captured.

        Raises CaptureError where some of it can't be found at a call.
        """
        self._traced = traced
        self._open = left_open
        self._refreshes = 0
        self.guards, walker, _ = Guards.find(traced, left_open, args, kwargs)
        if not left_open.numbers <= set(self.guards.numbers):
            raise refusal("a number outside of the arguments has no place to read it from")
        self._behaviour = Behaviour(
            walker.classes.values(),
            walker.made.values(),
            walker.modules.values(),
            traced.traced_code,
            traced.members,
            self.guards.open_attributes,
        )
        if replaced := replaced_attribute_of_tensors(traced.traced_code):
            what = f"{replaced} is not PyTorch's own"
            raise CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what)
        self._functions = functions_now()
        self._identities = self.guards.identities(args, kwargs)
        self._exact = self.guards.exact
        self._arrays = self.guards.arrays

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Run the full check: Dynamo's guards, and what Dynamo trusts but users do change."""
        token = token_of(self._traced.output)
        if token is not None and token != abc.get_cache_token():
            return False
        holds = self._dynamo_holds(args, kwargs) and self._behaviour.unchanged()
        return holds and self._functions.unchanged()

    def holds_now(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Check what no watch does: where the watches hold, that makes it the full check."""
        if self.guards.unwatchable:
            return self._dynamo_holds(args, kwargs)
        leaves = tensor_leaves(args, kwargs, self._open.classes)
        return not any(hasattr(leaves[leaf], member) for leaf, member in self.guards.absent)

    def _dynamo_holds(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        return bool(self._traced.guard_manager.check(self._traced.scope(args, kwargs)))

    def refresh(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Find the guards again; returns the live inputs, None when one can't be read.

        Valid only after `check` has passed for the same arguments.
        """
        self._refreshes += 1
        dicts_change = self._refreshes > _FEW
        self.guards, _, found = Guards.find(
            self._traced, self._open, args, kwargs, dicts_change=dicts_change
        )
        if self.guards.identities(args, kwargs) != self._identities:
            return None
        if self.guards.exact != self._exact or self.guards.arrays != self._arrays:
            return None
        return found if all(isinstance(value, torch.Tensor) for value in found) else None
