# SPDX-License-Identifier: Apache-2.0
"""Methods as Dynamo follows them, done otherwise for some time.

Up to torch 2.13 a variable of Dynamo's has a method for each. Later ones look into a table first,
where code calls one, and have methods for what operators do.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.variables import misc

from hostjit.replacements import replaced_attribute, replaced_items

__all__ = ["method_of", "replaced_handler"]

Handler = Callable[..., Any]

# That of methods, from torch 2.15 on.
_CallMethodVariable: Any = getattr(misc, "CallMethodVariable", misc.GetAttrVariable)


def method_of(variable: Any) -> tuple[Any, str] | None:
    """Return the variable that a method is of, and its name; None for what is no method."""
    if type(variable) is misc.GetAttrVariable:
        return variable.obj, variable.name
    if type(variable) is _CallMethodVariable:
        return variable.obj, variable.method_name
    return None


@contextlib.contextmanager
def replaced_handler(kind: Any, name: str, make: Callable[[Handler], Handler]) -> Iterator[None]:
    """Have Dynamo follow a method of variables of a kind otherwise.

    Args:
        kind: the class of the variables.
        name: the method's, such as "item". Where Dynamo has no handler for it nothing changes.
        make: returns the new handler, given Dynamo's.
    """
    listed: dict[str, Any] = getattr(kind, "tp_methods", {})
    original = getattr(kind, f"method_{name}", None)
    with contextlib.ExitStack() as stack:
        if name in listed:
            method = dataclasses.replace(listed[name], handler=make(listed[name].handler))
            stack.enter_context(replaced_items(listed, {name: method}))
        if original is not None:  # Dynamo itself calls some, of operators say
            stack.enter_context(replaced_attribute(kind, f"method_{name}", make(original)))
        yield
