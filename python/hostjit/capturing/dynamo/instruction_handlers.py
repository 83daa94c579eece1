# SPDX-License-Identifier: Apache-2.0
"""What Dynamo does for an instruction of CPython's, replaced for a while."""

from __future__ import annotations

import contextlib
import dis
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch._dynamo.symbolic_convert import InliningInstructionTranslator, InstructionTranslator

__all__ = ["Handler", "replaced_handlers"]

Handler = Callable[[Any, Any], None]
"""Takes a translator and an instruction."""


@contextlib.contextmanager
def replaced_handlers(names: Iterable[str], make: Callable[[Handler], Handler]) -> Iterator[None]:
    """Have `make` replace what handles the operations of these names, as far as CPython has them.

    In all threads: what is made has to ask which one it runs in.
    """
    codes = [dis.opmap[name] for name in names if name in dis.opmap]
    kinds: tuple[Any, ...] = (InstructionTranslator, InliningInstructionTranslator)
    saved = [(kind, code, kind.dispatch_table[code]) for kind in kinds for code in codes]
    for kind, code, original in saved:
        kind.dispatch_table[code] = make(original)
    try:
        yield
    finally:
        for kind, code, original in saved:
            kind.dispatch_table[code] = original
