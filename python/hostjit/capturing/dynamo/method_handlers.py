# SPDX-License-Identifier: Apache-2.0
"""Methods as Dynamo follows them, done otherwise for some time.

Up to torch 2.13 a variable of Dynamo's has a method for each. Later ones look into a table first.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

from hostjit.replacements import replaced_attribute, replaced_items

__all__ = ["replaced_handler"]

Handler = Callable[..., Any]


def replaced_handler(
    kind: Any, name: str, make: Callable[[Handler], Handler]
) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which Dynamo follows a method of variables of a kind otherwise.

    Args:
        kind: the class of the variables.
        name: the method's, such as "item". Where Dynamo has no handler for it nothing changes.
        make: returns the new handler, given Dynamo's.
    """
    listed: dict[str, Any] = getattr(kind, "tp_methods", {})
    if name in listed:
        method = dataclasses.replace(listed[name], handler=make(listed[name].handler))
        return replaced_items(listed, {name: method})
    original = getattr(kind, f"method_{name}", None)
    if original is None:
        return contextlib.nullcontext()
    return replaced_attribute(kind, f"method_{name}", make(original))
