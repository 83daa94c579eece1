# SPDX-License-Identifier: Apache-2.0
"""What Dynamo's code calls in C, where PyTorch has Python functions that are disabled for Dynamo.

`torch._dynamo.disable` is a Python frame around each, which takes longer than what it calls.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo import decorators, utils
from torch._dynamo.codegen import PyCodegen

from hostjit import _C
from hostjit.replacements import replaced_attribute

__all__ = ["calling_graphs_directly", "reading_sizes_directly"]

_SIZES = frozenset({"call_size", "call_stride", "call_storage_offset"})


@contextlib.contextmanager
def calling_graphs_directly() -> Iterator[None]:
    """Have Dynamo call graphs that hide their frames by themselves as they are, in this thread."""
    owner = threading.get_ident()
    disable: Any = decorators.disable

    def disabled(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
        is_ours = isinstance(fn, (_C.CompiledFunction, _C.Selection)) and fn.called_by_dynamo
        if is_ours and threading.get_ident() == owner:
            return fn
        return disable(fn, *args, **kwargs)

    with replaced_attribute(decorators, "disable", disabled):
        yield


@contextlib.contextmanager
def reading_sizes_directly() -> Iterator[None]:
    """Have Dynamo's code take the sizes that it gives to graphs from C, in this thread."""
    owner = threading.get_ident()
    load = PyCodegen.load_import_from

    def load_import_from(self: Any, module_name: str, object_name: str) -> None:
        is_size = module_name == utils.__name__ and object_name in _SIZES
        if is_size and threading.get_ident() == owner:
            module_name = _C.__name__
        return load(self, module_name, object_name)

    with replaced_attribute(PyCodegen, "load_import_from", load_import_from):
        yield
