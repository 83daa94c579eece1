# SPDX-License-Identifier: Apache-2.0
"""Guards on globals that would hide a builtin: `len = my_len`, after a call.

Dynamo leaves none on names that it finds among the builtins. Modules of installed packages are
taken to define what they do when they are imported.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import GlobalSource
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.replacements import replaced_attribute

__all__ = ["guard_builtin", "guarding_builtins"]

_GLOBALS = "__hostjit_globals"


@contextlib.contextmanager
def guarding_builtins() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    kind: Any = InstructionTranslatorBase
    load = kind.load_builtin

    def load_builtin(self: Any, inst: Any) -> Any:
        if threading.get_ident() == owner:
            guard_builtin(self, inst.argval)
        return load(self, inst)

    with replaced_attribute(kind, "load_builtin", load_builtin):
        yield


def guard_builtin(tx: Any, name: str) -> None:
    """Have Dynamo guard that no global hides a builtin from the code that is traced."""
    if not is_installed_file(tx.f_code.co_filename):
        own = tx.output.install_global_by_id(_GLOBALS, tx.f_globals)
        install_guard(GlobalSource(own).make_guard(_absence_of(name)))


def _absence_of(key: str) -> Any:
    """Return what makes the guard that a dict has no such key."""
    guards: Any = GuardBuilder
    if hasattr(guards, "DICT_NOT_CONTAINS"):
        return functools.partial(guards.DICT_NOT_CONTAINS, key=key)
    return functools.partial(guards.DICT_CONTAINS, key=key, invert=True)  # torch 2.11
