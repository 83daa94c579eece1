# SPDX-License-Identifier: Apache-2.0
"""`x in values` where values are compared that are not known: a bool, as Python gives it.

Dynamo gives the tensor that the comparisons make, and False for a constant among tensors, open
numbers or objects with an `__eq__`. A tensor that is itself one of the values is found without
looking at its data.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo import utils
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import ConstantVariable, TensorVariable, lists
from torch._dynamo.variables.builder import SourcelessBuilder

from hostjit.replacements import replaced_attribute

__all__ = ["memberships_of_unknown"]


@contextlib.contextmanager
def memberships_of_unknown() -> Iterator[None]:
    """Have Dynamo find what is among such values as Python does, in this thread; or stop."""
    owner = threading.get_ident()
    contains: Any = utils.iter_contains

    def iter_contains(items: Any, search: Any, tx: Any, check_tensor_identity: bool = False) -> Any:
        if check_tensor_identity or threading.get_ident() != owner:
            return contains(items, search, tx, check_tensor_identity)
        values = [_realized(item) for item in items]
        wanted = _realized(search)
        if any(isinstance(value, TensorVariable) for value in (wanted, *values)):
            found = _find(values, wanted)
            if found is not None:
                return ConstantVariable.create(found)
        elif wanted.is_python_constant():
            return _find_constant(values, wanted, tx)
        return contains(values, search, tx)

    with (
        replaced_attribute(utils, "iter_contains", iter_contains),
        replaced_attribute(lists, "iter_contains", iter_contains),
    ):
        yield


def _realized(value: Any) -> Any:
    return value.realize() if hasattr(value, "realize") else value


def _find(values: list[Any], wanted: Any) -> bool | None:
    """Tell whether a tensor or number is among the values; None where that is Dynamo's to say."""
    for value in values:
        both = (value, wanted)
        tensors = [x for x in both if isinstance(x, TensorVariable)]
        if len(tensors) == 2 and _is_one(value, wanted):
            return True
        if not tensors and all(x.is_python_constant() for x in both):
            if value.as_python_constant() == wanted.as_python_constant():
                return True
        elif len(tensors) == 1 and any(_is_no_number(x) for x in both):
            continue
        elif tensors:
            unimplemented(
                gb_type="comparison of tensors",
                context="in",
                explanation="Whether a tensor is equal to another value depends on its data.",
                hints=[],
            )
        else:
            return None
    return False


def _find_constant(values: list[Any], wanted: Any, tx: Any) -> Any:
    """Compare with one value after the other, as far as it takes."""
    compare = SourcelessBuilder.create(tx, operator.eq)
    either = SourcelessBuilder.create(tx, operator.or_)
    constant = wanted.as_python_constant()
    found: Any = ConstantVariable.create(False)
    for value in values:
        if value.is_python_constant():
            # `in` finds what is the same, a NaN for one.
            known = value.as_python_constant()
            equal: Any = ConstantVariable.create(known is constant or bool(known == constant))
        else:
            equal = compare.call_function(tx, [value, wanted], {})
        if equal.is_python_constant() and equal.as_python_constant() is True:
            return equal
        found = either.call_function(tx, [found, equal], {})
    return found


def _is_one(first: Any, second: Any) -> bool:
    examples = [x.proxy.node.meta.get("example_value") for x in (first, second)]
    return first is second or (examples[0] is not None and examples[0] is examples[1])


def _is_no_number(value: Any) -> bool:
    if not value.is_python_constant():
        return False
    return not isinstance(value.as_python_constant(), (bool, int, float, complex))
