# SPDX-License-Identifier: Apache-2.0
"""What Dynamo's sources stand for, in the call that is traced."""

from __future__ import annotations

import weakref
from typing import Any

from torch._dynamo import guards

__all__ = ["value_at"]


def value_at(tx: Any, source: Any) -> Any:
    """Return the object at a source when the call began."""
    output = tx.output
    if hasattr(output, "resolve_source_value"):
        return output.resolve_source_value(source)
    # Torch 2.11: what guards do to see an example.
    scope = {"G": output.root_tx.f_globals, "L": output.root_tx.f_locals}
    return source.get_value(scope, guards._get_closure_vars(), weakref.WeakKeyDictionary())
