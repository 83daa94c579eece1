# SPDX-License-Identifier: Apache-2.0
"""What Dynamo's sources stand for, in the call that is traced."""

from __future__ import annotations

import weakref
from typing import Any

from torch._dynamo import guards

__all__ = ["value_at"]


def value_at(tx: Any, source: Any) -> Any:
    """Return the object at a source when the call began: as guards do to see an example."""
    root = tx.output.root_tx
    scope = {"G": root.f_globals, "L": root.f_locals}
    # Names that sources use, such as `torch`; a copy, for a source that raises leaves one there.
    names = dict(guards._get_closure_vars())
    return source.get_value(scope, names, weakref.WeakKeyDictionary())
