# SPDX-License-Identifier: Apache-2.0
"""Guards on hooks of all modules, for code that has Dynamo's guards alone: it leaves none on them.

That is `torch.nn.modules.module.register_module_forward_hook` and its like.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables.nn_module import UnspecializedNNModuleVariable
from torch.nn.modules import module as torch_module

from hostjit.capturing.guards.behaviour import GLOBAL_HOOKS
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_global_hooks"]


@contextlib.contextmanager
def guarding_global_hooks() -> Iterator[None]:
    """Have Dynamo guard how many there are where it calls a module, in this thread."""
    owner = threading.get_ident()
    call = UnspecializedNNModuleVariable.call_function

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner:
            source = tx.import_source(torch_module.__name__)
            for name in GLOBAL_HOOKS:
                hooks = AttrSource(source, name)
                install_guard(hooks.make_guard(GuardBuilder.SEQUENCE_LENGTH))
        return call(self, tx, args, kwargs)

    with replaced_attribute(UnspecializedNNModuleVariable, "call_function", call_function):
        yield
