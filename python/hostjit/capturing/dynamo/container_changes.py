# SPDX-License-Identifier: Apache-2.0
"""Changes of containers that Dynamo follows wrongly: Python makes them itself, between two parts.

Dynamo does not write back what `OrderedDict.move_to_end` did to an object of the user's; it does
not know the limit of a deque, or forgets it for some changes and copies. What `-=` takes from a set
is written back here, and so is what a deque with a limit holds in the end.
"""

from __future__ import annotations

import contextlib
import importlib
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.source import AttrSource
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import (
    BuiltinVariable,
    ConstantVariable,
    SetVariable,
    VariableTracker,
)

from hostjit.capturing.dynamo.source_values import value_at
from hostjit.capturing.dynamo.user_containers import stopping_at_user_containers
from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_container_changes"]

_CHANGES = frozenset(
    {
        *("append", "appendleft", "clear", "extend", "extendleft", "insert", "pop", "popleft"),
        *("remove", "reverse", "rotate", "__setitem__", "__delitem__", "__iadd__"),
        # Nothing changes here, but the results have the limit.
        *("copy", "__copy__", "__add__", "__mul__", "__rmul__", "__imul__"),
    }
)
# The same, as operators. Dynamo of torch 2.11 has no methods for them, but asks builtin functions,
# and those before torch 2.14 have others for changes of elements.
_OPERATORS = (
    *("sq_concat_impl", "sq_repeat_impl", "sq_inplace_concat_impl", "sq_inplace_repeat_impl"),
    "sq_ass_item_impl",
)
_SUMS = (operator.add, operator.iadd, operator.mul, operator.imul)
# Those that heed the limit in Dynamo too, unless it is 0.
_RIGHT = frozenset({"append", "appendleft", "clear", "pop", "popleft", "remove", "reverse"})


@contextlib.contextmanager
def stopping_at_container_changes() -> Iterator[None]:
    """Have Dynamo stop at such a change, in this thread."""
    owner = threading.get_ident()

    def checked(kind: Any, is_wrong: Callable[[Any, str], bool]) -> Any:
        original = kind.call_method

        def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if threading.get_ident() == owner and is_wrong(self, name):
                _stop(f"{self.python_type_name()}.{name}")
            return original(self, tx, name, args, kwargs)

        return replaced_attribute(kind, "call_method", call)

    def extending(kind: Any) -> Any:
        original = kind.call_method

        def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "pop" and (args or kwargs) and threading.get_ident() == owner:
                _stop("deque.pop with arguments")  # which Python refuses
            is_limited = name == "extend" and _has_limit(self) and not _has_no_place(self)
            if threading.get_ident() != owner or not is_limited or len(args) != 1 or kwargs:
                return original(self, tx, name, args, kwargs)
            given: Any = VariableTracker.build(tx, list).call_function(tx, args, {})
            for item in given.items:
                self.call_method(tx, "append", [item], {})
            return ConstantVariable.create(None)

        return replaced_attribute(kind, "call_method", call)

    def popping(kind: Any) -> Any:
        original = kind.call_method

        def call(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            is_plain = type(self) is kind and name == "popitem" and (args or kwargs)
            if is_plain and threading.get_ident() == owner:
                _stop("OrderedDict.popitem with arguments")  # it would take the last item
            return original(self, tx, name, args, kwargs)

        return replaced_attribute(kind, "call_method", call)

    def operating(kind: Any, name: str) -> Any:
        original = getattr(kind, name)

        def operate(self: Any, tx: Any, *args: Any) -> Any:
            if threading.get_ident() == owner and _has_limit(self):
                _stop(f"operators on a {self.python_type_name()} with a limit")
            return original(self, tx, *args)

        return replaced_attribute(kind, name, operate)

    lists = importlib.import_module("torch._dynamo.variables.lists")
    make_deque = lists.DequeVariable.__init__

    def make_limited(self: Any, items: Any, maxlen: Any = None, **options: Any) -> None:
        source = options.get("source")
        if maxlen is None and source is not None and threading.get_ident() == owner:
            limit = value_at(InstructionTranslator.current_tx(), source).maxlen
            maxlen = ConstantVariable.create(limit)
            install_guard(AttrSource(source, "maxlen").make_guard(GuardBuilder.CONSTANT_MATCH))
        make_deque(self, items, maxlen, **options)

    # Torch 2.12 and earlier take it for difference_update, which is written back.
    subtract: Any = getattr(SetVariable, "nb_inplace_subtract_impl", None)

    def take_away(self: Any, tx: Any, other: Any) -> Any:
        result = subtract(self, tx, other)
        if threading.get_ident() == owner and result is self:
            self.should_reconstruct_all = True
        return result

    dicts = importlib.import_module("torch._dynamo.variables.dicts")
    user_defined = importlib.import_module("torch._dynamo.variables.user_defined")
    with contextlib.ExitStack() as stack:
        stack.enter_context(stopping_at_user_containers())
        stack.enter_context(checked(lists.DequeVariable, _is_wrong_for_deque))
        stack.enter_context(extending(lists.DequeVariable))
        stack.enter_context(_writing_back_limited(owner, lists.DequeVariable))
        stack.enter_context(replaced_attribute(lists.DequeVariable, "__init__", make_limited))
        for name in _OPERATORS:
            if hasattr(lists.DequeVariable, name):
                stack.enter_context(operating(lists.DequeVariable, name))
        if not hasattr(lists.DequeVariable, _OPERATORS[0]):
            stack.enter_context(_stopping_at_sums(owner, lists.DequeVariable))
        # Torch 2.11 has no class of its own for them.
        stack.enter_context(popping(dicts.ConstDictVariable))
        ordered = getattr(user_defined, "OrderedDictVariable", dicts.ConstDictVariable)
        stack.enter_context(checked(ordered, _is_wrong_for_ordered_dict))
        if subtract is not None:
            taking = replaced_attribute(SetVariable, "nb_inplace_subtract_impl", take_away)
            stack.enter_context(taking)
        yield


@contextlib.contextmanager
def _stopping_at_sums(owner: int, deque: Any) -> Iterator[None]:
    original: Any = BuiltinVariable.call_function

    def call(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn in _SUMS and threading.get_ident() == owner:
            found = [arg.realize() for arg in args]
            if any(isinstance(arg, deque) and _has_limit(arg) for arg in found):
                _stop("operators on a deque with a limit")
        return original(self, tx, args, kwargs)

    with replaced_attribute(BuiltinVariable, "call_function", call):
        yield


@contextlib.contextmanager
def _writing_back_limited(owner: int, deque: Any) -> Iterator[None]:
    """Dynamo empties a deque and fills it again, but refuses one with a limit, which never matters.

    What it holds in the end is within the limit.
    """
    original: Any = SideEffects.codegen_update_mutated

    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return original(self, *args, **kwargs)
        limits = {
            found: found.maxlen
            for found in self._get_modified_vars()
            if isinstance(found, deque) and found.source is not None
        }
        try:
            for found in limits:
                found.maxlen = ConstantVariable.create(None)
            return original(self, *args, **kwargs)
        finally:
            for found, limit in limits.items():
                found.maxlen = limit

    with replaced_attribute(SideEffects, "codegen_update_mutated", update):
        yield


def _stop(what: str) -> None:
    unimplemented(
        gb_type="change of a container",
        context=what,
        explanation=f"Dynamo does not follow {what} rightly.",
        hints=[],
    )


def _is_wrong_for_deque(deque: Any, name: str) -> bool:
    if name not in _CHANGES:
        return False
    if name in (*_RIGHT, "extend") and not _has_no_place(deque):
        return False
    return _has_limit(deque)


def _has_no_place(deque: Any) -> bool:
    return bool(deque.maxlen.as_python_constant() == 0)


def _has_limit(deque: Any) -> bool:
    return deque.maxlen.as_python_constant() is not None


def _is_wrong_for_ordered_dict(ordered: Any, name: str) -> bool:
    return name == "move_to_end" and ordered.source is not None
