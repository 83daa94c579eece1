# SPDX-License-Identifier: Apache-2.0
"""Guards on modules of the user's that code imports when it runs: another may take their name.

Dynamo leaves none, and has the first module of a name as a global of the code. Modules of installed
packages are taken to stay.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource, DictGetItemSource, GlobalSource
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_imported_modules"]

_SYS = "__hostjit_sys"


@contextlib.contextmanager
def guarding_imported_modules() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    kind: Any = InstructionTranslatorBase
    original = kind.import_source

    def import_source(self: Any, name: str) -> Any:
        if threading.get_ident() != owner or not _is_of_user(name):
            return original(self, name)
        variables, alias = self.output.global_scope, f"__import_{name.replace('.', '_dot_')}"
        if variables.get(alias) is not sys.modules[name]:
            variables.pop(alias, None)
        source = GlobalSource(self.output.install_global_by_id(_SYS, sys))
        module = DictGetItemSource(AttrSource(source, "modules"), name)
        install_guard(module.make_guard(GuardBuilder.ID_MATCH))
        return original(self, name)

    with replaced_attribute(kind, "import_source", import_source):
        yield


def _is_of_user(name: str) -> bool:
    module = sys.modules.get(name)
    if module is None or name in sys.builtin_module_names:
        return False
    return not is_installed_file(getattr(module, "__file__", None) or "")
