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

__all__ = ["guarding_builtins"]

_GLOBALS = "__hostjit_globals"


@contextlib.contextmanager
def guarding_builtins() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    kind: Any = InstructionTranslatorBase
    load = kind.load_builtin

    def load_builtin(self: Any, inst: Any) -> Any:
        if threading.get_ident() == owner and not is_installed_file(self.f_code.co_filename):
            name = self.output.install_global_by_id(_GLOBALS, self.f_globals)
            absent = functools.partial(GuardBuilder.DICT_NOT_CONTAINS, key=inst.argval)
            install_guard(GlobalSource(name).make_guard(absent))
        return load(self, inst)

    with replaced_attribute(kind, "load_builtin", load_builtin):
        yield
