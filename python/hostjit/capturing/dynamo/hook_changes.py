# SPDX-License-Identifier: Apache-2.0
"""Code that looks at the hooks of a module, or changes them, instead of calling the module.

Dynamo takes the hooks of a module that has none for a new dict, and knows those of others without
their keys: it is made to call them. Others than that are Python's to run.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.nn_module import UnspecializedNNModuleVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_hook_changes"]

# Those that Dynamo reads in its own way.
_HOOKS = frozenset(
    {
        *("_backward_hooks", "_backward_pre_hooks"),
        *("_forward_hooks", "_forward_hooks_with_kwargs"),
        *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    }
)
# Where PyTorch calls them, or counts them; other code of its own takes them by their keys.
_MODULES = os.path.dirname(nn.modules.__file__) + os.sep
# Of the names of code there that changes them, also of the part that is behind a break.
_CHANGING = "register_"


@contextlib.contextmanager
def stopping_at_hook_changes() -> Iterator[None]:
    """Have Dynamo stop there, and where a module is called whose hooks it has changed before."""
    owner = threading.get_ident()
    call: Any = UnspecializedNNModuleVariable.call_function
    calling: list[Any] = []

    def call_function(self: Any, tx: Any, *args: Any) -> Any:
        if threading.get_ident() != owner:
            return call(self, tx, *args)
        # Dynamo itself asks whether there are hooks.
        calling.append(tx)
        try:
            return call(self, tx, *args)
        finally:
            calling.pop()

    def reading(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            if name in _HOOKS and threading.get_ident() == owner:
                is_call = any(tx is caller for caller in calling) or _only_calls(tx.f_code)
                if not is_call or _is_changed(self, tx, name):
                    unimplemented(
                        gb_type="hooks of a module",
                        context=f"{self} {name}",
                        explanation="Dynamo knows the hooks of modules only to call them.",
                        hints=[],
                    )
            return original(self, tx, name)

        return read

    with (
        replaced_attribute(UnspecializedNNModuleVariable, "call_function", call_function),
        replaced_reads(UnspecializedNNModuleVariable, reading),
    ):
        yield


def _only_calls(code: Any) -> bool:
    return code.co_filename.startswith(_MODULES) and _CHANGING not in code.co_name


def _is_changed(module: Any, tx: Any, name: str) -> bool:
    """Tell whether Dynamo has followed changes of a dict of hooks that it found elsewhere."""
    if module.source is None:
        return False
    effects = tx.output.side_effects
    hooks = getattr(module.value, name)
    if hooks not in effects:
        return False
    known = effects[hooks]
    return any(effects.is_modified(x) for x in (known, getattr(known, "_base_vt", None)) if x)
