# SPDX-License-Identifier: Apache-2.0
"""Objects with one `__dict__` for their attributes: `self.__dict__ = self.shared`.

Dynamo notes what code assigns at the object that is named, and does not find it in others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import UserDefinedObjectVariable, dicts

from hostjit.capturing.instances import instance_dict
from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_shared_dicts"]


@dataclasses.dataclass(slots=True)
class _Owners:
    """Knows Dynamo's variables of the objects from outside by their dicts.

    Attributes:
        seen: how many of the variables that there are it has looked at.
        by_dict: variables by the identity of the dict.
    """

    seen: int = 0
    by_dict: defaultdict[int, list[Any]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )


# Dynamo's variables for the dicts of other objects; older versions have none.
_OF_OBJECTS: tuple[Any, ...] = (getattr(dicts, "DunderDictVariable", ()),)
# Of Dynamo's side effects.
_OWNERS = "_hostjit_owners_of_dicts"


@contextlib.contextmanager
def stopping_at_shared_dicts() -> Iterator[None]:
    """Have Dynamo stop where code changes one and the call has another, in this thread."""
    owner = threading.get_ident()
    kind: Any = SideEffects
    track, store = kind.track_object_existing, kind.store_attr

    def track_object_existing(self: Any, item: Any, variable: Any) -> Any:
        tracked = track(self, item, variable)
        if threading.get_ident() == owner:
            others = _sharing(self, tracked)
            if any(other in self.store_attr_mutations for other in others):
                _stop(tracked)
        return tracked

    def store_attr(self: Any, item: Any, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        if threading.get_ident() == owner:
            if _sharing(self, item) or (name == "__dict__" and isinstance(value, _OF_OBJECTS)):
                _stop(item)
        store(self, item, name, value, *args, **kwargs)

    with (
        replaced_attribute(kind, "track_object_existing", track_object_existing),
        replaced_attribute(kind, "store_attr", store_attr),
    ):
        yield


def _sharing(effects: Any, variable: Any) -> list[Any]:
    """Return the variables of other objects that have the dict of this one's."""
    key = _key(variable)
    if key is None:
        return []
    owners = getattr(effects, _OWNERS, None)
    variables = effects.id_to_variable
    if owners is None:
        owners = _Owners()
        setattr(effects, _OWNERS, owners)
    for other in itertools.islice(variables.values(), owners.seen, None):
        if (found := _key(other)) is not None:
            owners.by_dict[found].append(other)
    owners.seen = len(variables)
    return [other for other in owners.by_dict[key] if other.value is not variable.value]


def _key(variable: Any) -> int | None:
    if not isinstance(variable, UserDefinedObjectVariable) or variable.source is None:
        return None
    attributes = instance_dict(variable.value)
    return None if attributes is None else id(attributes)


def _stop(variable: Any) -> None:
    unimplemented(
        gb_type="objects that share a __dict__",
        context=str(variable),
        explanation="Another object has the same __dict__, and the code has changed one of them.",
        hints=[],
    )
