# SPDX-License-Identifier: Apache-2.0
"""Guards on dicts that code takes as a whole: `not d`, `str(d)`, `[*d]`, `{**d}`.

Dynamo leaves one where code calls most of the methods of a dict. Where it looks at the keys in
another way there is none, nor one on the order of keys where it unpacks them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables import ConstDictVariable, LazyVariableTracker

from hostjit.replacements import replaced_attribute

__all__ = ["guarding_whole_dicts"]

# Methods of Dynamo's dicts look up keys, or leave guards themselves, but for these.
_OF_DICTS = ("ConstDictVariable.", "DunderDictVariable.", "NNModuleHooksDictVariable.")
_WHOLE = frozenset(
    {
        *("as_proxy", "as_python_constant", "repr_impl", "tp_repr_impl", "dict_popitem"),
        *("call_tree_map_branch", "call_tree_map_with_path_branch"),
    }
)
_LAZILY: types.CodeType = LazyVariableTracker.__getattr__.__code__


@contextlib.contextmanager
def guarding_whole_dicts() -> Iterator[None]:
    """Have Dynamo guard their keys, and the order of these, in this thread."""
    owner = threading.get_ident()
    kind: Any = ConstDictVariable
    is_constant, match_keys = kind.is_python_constant, kind.install_dict_keys_match_guard
    asked: list[Any] = []

    def read(self: Any) -> Any:
        fields = vars(self)
        if fields.get("source") is not None and threading.get_ident() == owner:
            reader: Any = sys._getframe(1)
            if reader.f_code is _LAZILY:
                reader = reader.f_back
            if not asked and _takes_whole(reader):
                self.install_dict_keys_match_guard()
        return fields["items"]

    def write(self: Any, items: Any) -> None:
        vars(self)["items"] = items

    def is_python_constant(self: Any) -> bool:
        if threading.get_ident() != owner:
            return bool(is_constant(self))
        asked.append(self)
        try:
            return bool(is_constant(self))
        finally:
            asked.pop()

    def install_dict_keys_match_guard(self: Any) -> None:
        match_keys(self)
        if threading.get_ident() == owner and self.source:
            InstructionTranslator.current_tx().output.guard_on_key_order.add(self.source)

    name = "install_dict_keys_match_guard"
    with (
        replaced_attribute(kind, "items", property(read, write), create=True),
        replaced_attribute(kind, "is_python_constant", is_python_constant),
        replaced_attribute(kind, name, install_dict_keys_match_guard),
    ):
        yield


def _takes_whole(reader: types.FrameType) -> bool:
    """Tell whether code of Dynamo's that reads the items of a dict looks at all of its keys."""
    code = reader.f_code
    if code.co_qualname.startswith(_OF_DICTS):
        return code.co_name in _WHOLE
    # Else it tells what the call changed.
    return not reader.f_globals["__name__"].startswith(("torch._dynamo.side_effects", "hostjit."))
