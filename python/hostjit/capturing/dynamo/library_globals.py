# SPDX-License-Identifier: Apache-2.0
"""Guards on globals of Python's own modules: Dynamo leaves none, for nobody sets most of them.

What functions such as `os.getenv` and `tempfile.gettempdir` read there is another after some time:
plain values, and the environment. Classes, functions and caches are taken to stay.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.source import SkipGuardSource
from torch._dynamo.symbolic_convert import InliningInstructionTranslator

from hostjit.replacements import replaced_attribute

__all__ = ["guarded_source", "guarding_library_globals"]

_CHANGE = (bool, int, float, str, bytes, type(None), type(os.environ))


@contextlib.contextmanager
def guarding_library_globals() -> Iterator[None]:
    """Have Dynamo guard them, in this thread."""
    owner = threading.get_ident()
    kind: Any = InliningInstructionTranslator
    original = kind.get_globals_source_and_value

    def get_globals_source_and_value(self: Any, name: str) -> Any:
        module, variable, source = original(self, name)
        if threading.get_ident() == owner and type(self.f_globals.get(name)) in _CHANGE:
            source = guarded_source(source)
        return module, variable, source

    with replaced_attribute(kind, "get_globals_source_and_value", get_globals_source_and_value):
        yield


def guarded_source(source: Any) -> Any:
    """Return the source with guards, of one without."""
    return source.base if isinstance(source, SkipGuardSource) else source
