# SPDX-License-Identifier: Apache-2.0
"""How long Dynamo's guards live: they would go with the last of the objects that they compare.

A finalizer of each of these objects refers to the guards, to drop the code that they are for. The
classes among them, such as `tuple` or `nn.Linear`, are never freed, and so the guards would not be.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.guards import CheckFunctionManager

from hostjit.replacements import replaced_attribute

__all__ = ["guards_are_free", "guards_outlive_classes"]


@contextlib.contextmanager
def _without_finalizers(needs_none: Callable[[Any], bool]) -> Iterator[None]:
    owner = threading.get_ident()
    kind: Any = CheckFunctionManager
    original = kind.id_ref

    def id_ref(self: Any, value: object, *names: str) -> int:
        if threading.get_ident() == owner and needs_none(value):
            return id(value)
        found: int = original(self, value, *names)
        return found

    with replaced_attribute(kind, "id_ref", id_ref):
        yield


def guards_are_free() -> contextlib.AbstractContextManager[None]:
    """Have guards made without finalizers, in this thread: nothing that Dynamo keeps is for them.

    What they compare is alive where it has watches.
    """
    return _without_finalizers(lambda _: True)


def guards_outlive_classes() -> contextlib.AbstractContextManager[None]:
    """Have guards made, in this thread, that go though classes of modules stay."""
    return _without_finalizers(_stays)


def _stays(value: Any) -> bool:
    if not isinstance(value, type):
        return False
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value
