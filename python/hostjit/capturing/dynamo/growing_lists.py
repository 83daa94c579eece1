# SPDX-License-Identifier: Apache-2.0
"""Lists and deques from outside of a call that it only adds to: `self.losses.append(loss)`.

Dynamo compares how long they are and what is in them, and writes all of it back. As long as the
code does nothing else with one, a program is for any length: Python adds to it once the graph ran.
"""

from __future__ import annotations

import collections
import contextlib
import operator
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._dynamo import polyfills
from torch._dynamo.bytecode_transformation import create_call_method, create_instruction
from torch._dynamo.exc import RestartAnalysis, unimplemented
from torch._dynamo.guards import GuardBuilder
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.symbolic_convert import SpeculationEntry, SpeculationLog
from torch._dynamo.variables import builder
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import VariableBuilder
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lists import BaseListVariable, ListVariable

from hostjit.capturing.dynamo.attribute_reads import READ
from hostjit.capturing.dynamo.entry import TARGET_NAME
from hostjit.capturing.dynamo.growing_lengths import (
    Varies,
    is_one_graph,
    stopping_at_lengths,
    varies_in_frame,
)
from hostjit.capturing.numbers.open_numbers import MOST_NUMBERS
from hostjit.capturing.unread import is_item
from hostjit.replacements import replaced_attribute

__all__ = [
    "LOOK",
    "adding_to_lists",
    "following_growth",
    "following_growth_in_frames",
    "growing_names",
    "growth_forgotten",
]

_ADDING: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend"}),
    collections.deque: frozenset({"append", "extend", "appendleft", "extendleft"}),
}
LOOK = "list that code adds to and looks at"
"""How a stop at such a look is called."""
_POLYFILLS = os.path.dirname(os.path.abspath(polyfills.__file__)) + os.sep
# Of CPython's binary operators, `+=`.
_INPLACE_ADD = 13


class GrowingVariable(VariableTracker):
    """Stands for such a list or deque.

    Where code looks at it otherwise, the trace begins anew, or stops where that differs by call.

    Attributes:
        kind: its type.
        added: the methods that were called, with what is added by each.
        names: Dynamo's, one for each way on which the code comes by it.
    """

    def __init__(self, kind: type, look: Callable[[], Any], **options: Any) -> None:
        super().__init__(**options)
        self.kind = kind
        self.added: list[tuple[str, VariableTracker]] = []
        self.names = {self.source.name} if self.source else set()
        self._look = look

    def python_type(self) -> type:
        return self.kind

    def is_python_constant(self) -> bool:
        return False

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> VariableTracker:
        adds = name in _ADDING[self.kind] and len(args) == 1 and not kwargs
        if not adds or (name.startswith("extend") and not _is_known_sequence(args[0])):
            self.look()
        tx.output.side_effects.mutation(self)
        self.added = [*self.added, (name, args[0])]
        return ConstantVariable.create(None)

    def look(self, *_: Any, **__: Any) -> Any:
        """Have the trace begin anew, with a list as Dynamo knows it, if it may go on so."""
        self._look()
        raise RestartAnalysis(restart_reason="hostjit: code looks at a list that it adds to")

    items = property(look)


def _read(variable: GrowingVariable, tx: Any, name: str) -> Any:
    """Return a method that adds; for other attributes the trace begins anew."""
    if name not in _ADDING[variable.kind]:
        variable.look()
    return getattr(VariableTracker, READ)(variable, tx, name)


setattr(GrowingVariable, READ, _read)


def _is_known_sequence(variable: Any) -> bool:
    return isinstance(variable.realize(), BaseListVariable)


def _looks(name: str) -> bool:
    """Whether a method or property that lists have in Dynamo is about what is in them."""
    if name in vars(GrowingVariable) or (name.startswith("__") and name.endswith("__")):
        return False
    if name.endswith("_impl") or not hasattr(VariableTracker, name):
        return True
    return "unpack" in name or name in (
        *("as_proxy", "maybe_fx_node", "as_python_constant", "guard_as_python_constant"),
        *("call_function", "next_variable", "call_obj_hasattr", "get_python_hash"),
        *("is_python_equal", "get_real_python_backed_value"),
        *("sq_length", "mp_length", "sq_contains"),
        *("call_tree_map_branch", "call_tree_map_with_path_branch"),
    )


for _name in dir(ListVariable):
    if callable(getattr(ListVariable, _name)) and _looks(_name):
        setattr(GrowingVariable, _name, GrowingVariable.look)


@contextlib.contextmanager
def following_growth_in_frames() -> Iterator[None]:
    """Have it so in code of frames, which nothing else compares lists for, and whose code adds."""
    owner = threading.get_ident()
    update = SideEffects.codegen_update_mutated

    def add_and_update(self: Any, codegen: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return update(self, codegen, *args, **kwargs)
        with adding_to_lists(self, codegen):
            return update(self, codegen, *args, **kwargs)

    with (
        following_growth(varies_in_frame, of_arguments=True),
        stopping_at_lengths(varies_in_frame),
        replaced_attribute(SideEffects, "codegen_update_mutated", add_and_update),
    ):
        yield


@contextlib.contextmanager
def following_growth(varies: Varies | None = None, *, of_arguments: bool = False) -> Iterator[None]:
    """Have Dynamo take lists and deques for such ones, in this thread, where code adds to them.

    Args:
        varies: tells whether a list or deque had another length before. Where code looks at such a
            one, or at one of many numbers, the trace stops. None: it does not.
        of_arguments: those of the arguments, too.
    """
    owner = threading.get_ident()
    looked_at: dict[str, tuple[Any, int]] = {}  # and where in Dynamo's log of breaks
    wrap = VariableBuilder._wrap
    call_builtin = BuiltinVariable.call_function
    break_there = SpeculationEntry.fail_and_restart_analysis
    compare = builder.make_dupe_guard
    growing: dict[str, GrowingVariable] = {}

    def begin_anew(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            for name, (log, place) in [*looked_at.items()]:
                if any(entry is self for entry in log.entries[:place]):
                    del looked_at[name]  # behind the break
        return break_there(self, *args, **kwargs)

    def wrap_list(self: Any, value: Any) -> Any:
        kind = type(value)
        is_asked = threading.get_ident() == owner and kind in _ADDING
        if not is_asked or self.source is None or self.source.name in looked_at:
            return wrap(self, value)
        if not of_arguments and not _is_outside(self.source):
            return wrap(self, value)
        if not (_is_of_method(self.source) or _adds_now(self.tx.output.current_tx, kind)):
            return wrap(self, value)
        self.install_guards(GuardBuilder.TYPE_MATCH)
        name, tx = self.source.name, self.tx.output.current_tx

        def look() -> None:
            differs = varies is not None and varies(tx, name, len(value))
            may_stop = varies is not None and not is_one_graph(tx)
            if may_stop and (differs or _has_many_numbers(value)):
                unimplemented(
                    gb_type=LOOK,
                    context=name,
                    explanation="There were other items in it before.",
                    hints=[],
                )
            log = tx.speculation_log
            looked_at[name] = log, _own_entries(log)
            if not any(entry._failed for entry in log.entries):
                log.clear()  # the code that is traced in place of Python's own goes another way

        made = growing[name] = GrowingVariable(kind, look, source=self.source)
        return self.tx.output.side_effects.track_mutable(value, made)

    def note_name(source: Any, earlier: Any) -> Any:
        if threading.get_ident() == owner and earlier and earlier.name in growing:
            growing[earlier.name].names.add(source.name)
        return compare(source, earlier)

    def builtin(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner and self.fn is operator.iadd and len(args) == 2:
            grown = args[0].realize()
            if isinstance(grown, GrowingVariable):
                grown.call_method(tx, "extend", [args[1]], {})
                return grown
        return call_builtin(self, tx, args, kwargs)

    with (
        replaced_attribute(VariableBuilder, "_wrap", wrap_list),
        replaced_attribute(BuiltinVariable, "call_function", builtin),
        replaced_attribute(builder, "make_dupe_guard", note_name),
        replaced_attribute(SpeculationEntry, "fail_and_restart_analysis", begin_anew),
    ):
        yield


def _own_entries(log: SpeculationLog) -> int:
    """Count the entries up to now, but for those of code that Dynamo traces in place of C."""
    count = int(log.index)
    while count and log.entries[count - 1].filename.startswith(_POLYFILLS):
        count -= 1
    return count


def _has_many_numbers(items: Sequence[Any]) -> bool:
    return sum(type(item) in (int, float) for item in items) > MOST_NUMBERS


def growing_names(effects: SideEffects) -> set[str]:
    """Return Dynamo's names of them."""
    return set[str]().union(*(variable.names for variable in _growing(effects)))


@contextlib.contextmanager
def growth_forgotten(effects: SideEffects) -> Iterator[None]:
    """Forget what is added to them meanwhile, by code that runs in the trace alone."""
    before = {id(variable): variable.added for variable in _growing(effects)}
    yield
    for variable in _growing(effects):
        variable.added = before.get(id(variable), [])


def _growing(effects: SideEffects) -> list[GrowingVariable]:
    variables = effects.id_to_variable.values()
    return [variable for variable in variables if isinstance(variable, GrowingVariable)]


def adding_to_lists(effects: SideEffects, codegen: Any) -> contextlib.AbstractContextManager[Any]:
    """Write the code that adds to them; what writes other changes is told of these alone."""
    modified = effects._get_modified_vars()
    others = [variable for variable in modified if not isinstance(variable, GrowingVariable)]
    for variable in modified:
        if isinstance(variable, GrowingVariable):
            for name, value in variable.added:
                codegen(variable.source)
                codegen.load_method(name)
                codegen(value)
                codegen.extend_output([*create_call_method(1), create_instruction("POP_TOP")])
    if len(others) == len(modified):
        return contextlib.nullcontext()
    return replaced_attribute(effects, "_get_modified_vars", lambda: others)


def _is_of_method(source: Any) -> bool:
    """Whether a list is what a method is bound to, which a break has put off: `add(x.item())`."""
    return getattr(source, "member", None) == "__self__"


def _adds_now(tx: Any, kind: type) -> bool:
    """Whether the statement that has a list wrapped takes a method that adds, or is `+=`."""
    if tx.instruction_pointer is None:  # it returns
        return False
    now = tx.current_instruction
    after = tx.instructions[tx.instruction_pointer : tx.instruction_pointer + 1]
    for instruction in (now, *after):
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            if instruction.argval in _ADDING[kind]:
                return True
    return bool(now.opname == "BINARY_OP" and now.arg == _INPLACE_ADD)


def _is_outside(source: Any) -> bool:
    """Whether something is found elsewhere than in what a call brings, which is compared whole.

    That is in an attribute of an object, too, where the object is an argument.
    """
    is_of_object = False
    while hasattr(source, "base"):
        is_of_object |= not is_item(source)
        source = source.base
    local = getattr(source, "local_name", TARGET_NAME)
    return source is not None and (is_of_object or local == TARGET_NAME)
