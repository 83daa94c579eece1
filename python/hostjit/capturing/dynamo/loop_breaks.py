# SPDX-License-Identifier: Apache-2.0
"""Breaks in loops, whose passes are compiled: Dynamo should not go on behind them.

Behind such a break it has a function for each pass up to its limit, or says that there is none. It
tells a loop by a jump ahead of the first `return` that follows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from torch._dynamo.symbolic_convert import InstructionTranslatorBase

from hostjit.bytecode.loops import lines_of_loops
from hostjit.capturing.failures import is_library_file
from hostjit.replacements import replaced_attribute

__all__ = ["knowing_loops"]


@contextlib.contextmanager
def knowing_loops() -> Iterator[None]:
    """Have Dynamo know in this thread of every loop in which it stops, its condition included."""
    owner = threading.get_ident()
    original = InstructionTranslatorBase.maybe_has_backedge

    def is_in_loop(self: InstructionTranslatorBase) -> bool:
        return original(self) or (threading.get_ident() == owner and _is_in_loop(self))

    with replaced_attribute(InstructionTranslatorBase, "maybe_has_backedge", is_in_loop):
        yield


def _is_in_loop(translator: InstructionTranslatorBase | None) -> bool:
    while translator is not None:
        code = translator.f_code
        if not is_library_file(code.co_filename) and translator.lineno in lines_of_loops(code):
            return True
        translator = translator.parent
    return False
