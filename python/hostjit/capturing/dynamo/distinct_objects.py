# SPDX-License-Identifier: Apache-2.0
"""Objects that a call changes, and others of their type, for code that has Dynamo's guards.

Dynamo has a guard where two of them were one object when it traced, and none where they were not:
what code assigns to one is not what it then reads of another.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from torch._dynamo.guards import install_guard
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.source import GlobalStateSource
from torch._dynamo.variables import (
    CellVariable,
    NewGlobalVariable,
    TensorVariable,
    UserDefinedObjectVariable,
)
from torch._dynamo.variables.base import AttributeMutationExisting, ValueMutationExisting

from hostjit.capturing.instances import instance_dict
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_distinct_objects"]

_OLD = (AttributeMutationExisting, ValueMutationExisting)
# Of which Dynamo itself tells whether they are one, or nobody knows two.
_OTHERS: tuple[Any, ...] = (TensorVariable, CellVariable, NewGlobalVariable)


@contextlib.contextmanager
def guarding_distinct_objects() -> Iterator[None]:
    """Have Dynamo guard that they are different objects, in this thread."""
    owner = threading.get_ident()
    kind: Any = SideEffects
    update = kind.codegen_update_mutated

    def codegen_update_mutated(self: Any, *args: Any, **kwargs: Any) -> None:
        if threading.get_ident() == owner:
            for sources in _sources(self):
                guard = functools.partial(_add_guard, sources)
                install_guard(GlobalStateSource().make_guard(guard))
        update(self, *args, **kwargs)

    with replaced_attribute(kind, "codegen_update_mutated", codegen_update_mutated):
        yield


def _sources(effects: Any) -> Iterator[Sequence[tuple[Any, bool]]]:
    """Yield where the objects of a type came from, if there are two and the code changes one.

    And whether they have a `__dict__`.
    """
    by_type: defaultdict[type, list[Any]] = defaultdict(list)
    for variable in effects.id_to_variable.values():
        is_old = isinstance(variable.mutation_type, _OLD)
        if is_old and not isinstance(variable, _OTHERS) and variable.source is not None:
            by_type[variable.python_type()].append(variable)
    for variables in by_type.values():
        if len(variables) > 1 and any(map(effects.is_modified, variables)):
            yield [(variable.source, _has_dict(variable)) for variable in variables]


def _has_dict(variable: Any) -> bool:
    is_object = isinstance(variable, UserDefinedObjectVariable)
    return is_object and instance_dict(variable.value) is not None


def _add_guard(sources: Sequence[tuple[Any, bool]], builder: Any, _: Any) -> None:
    found = [(builder.arg_ref(source.name), has_dict) for source, has_dict in sources]
    # Objects that have different dicts are different ones.
    values = [
        f"object.__getattribute__({name}, '__dict__')" if has_dict else name
        for name, has_dict in found
    ]
    identities = ", ".join(f"id({value})" for value in values)
    code = f"len({{{identities}}}) == {len(sources)}"
    builder.add_python_lambda_leaf_guard_to_root([code], [code])
