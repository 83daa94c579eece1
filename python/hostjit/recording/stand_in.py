# SPDX-License-Identifier: Apache-2.0
"""What stands for values of tensors in code that is recorded."""

from __future__ import annotations

from typing import Any

__all__ = ["StandIn"]


class StandIn:
    """Stands for what code has read of a tensor, where it keeps that to itself."""

    __slots__ = ()

    def plain(self) -> Any:
        """Return what it stands for, for what comes behind the call."""
        raise NotImplementedError

    def read(self) -> Any:
        """Return what it stands for. From then on a replay compares that."""
        raise NotImplementedError
