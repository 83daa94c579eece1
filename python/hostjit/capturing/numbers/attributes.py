# SPDX-License-Identifier: Apache-2.0
"""Attributes of open numbers, such as `number.real`.

Dynamo leaves them to its bytecode, which would be run on the number of the capture alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads

__all__ = ["knows_attributes"]

_ITSELF = {int: frozenset({"real", "numerator"}), float: frozenset({"real"})}
_CONSTANTS: dict[type, dict[str, int | float]] = {
    int: {"imag": 0, "denominator": 1},
    float: {"imag": 0.0},
}


@contextlib.contextmanager
def knows_attributes() -> Iterator[None]:
    """Have Dynamo know them, also of open sizes, in this thread."""
    owner = threading.get_ident()

    def knowing(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            kind = self.python_type()
            if threading.get_ident() == owner and kind in _ITSELF:
                if name in _ITSELF[kind]:
                    return self
                if name in _CONSTANTS[kind]:
                    return ConstantVariable.create(_CONSTANTS[kind][name])
            return original(self, tx, name)

        return read

    with replaced_reads(SymNodeVariable, knowing):
        yield
