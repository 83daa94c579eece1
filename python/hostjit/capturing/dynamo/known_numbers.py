# SPDX-License-Identifier: Apache-2.0
"""What Dynamo makes of open numbers otherwise than Python does: it asks what they are there.

`min` and `max` of an int and a float make all a float, a deque with an open `maxlen` is an error,
and one with a `maxlen` of 0 keeps all. `f"{n}"` it takes for `n` itself, or ends on. A remainder of
floats it takes for an int: `t % 1.0` for 0.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.exc import unimplemented
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.lists import DequeVariable
from torch._dynamo.variables.tensor import SymNodeVariable

from hostjit.replacements import replaced_attribute

__all__ = ["knowing_divided_floats", "knowing_numbers", "making_texts_of_numbers"]

# Of floats, `//` is not the floor of a quotient that was rounded: 0.9 // 0.3 is 2.0.
_DIVISIONS = frozenset({operator.mod, operator.imod, operator.floordiv, operator.ifloordiv, divmod})


@contextlib.contextmanager
def knowing_numbers() -> Iterator[None]:
    """Have Dynamo decide by numbers there, in this thread: each answer is a program.

    A length of a deque is one number. `min` and `max` of two types return the one or the other, of
    the type that it has: that is two programs.
    """
    owner = threading.get_ident()
    least_or_most = BuiltinVariable._call_min_max_binary
    make_deque = DequeVariable.__init__
    validate = getattr(DequeVariable, "validate_maxlen", None)  # torch 2.14 and later

    def choose(self: Any, tx: Any, a: Any, b: Any) -> Any:
        if threading.get_ident() != owner or not _differ_in_type(a, b):
            return least_or_most(self, tx, a, b)
        compare = operator.gt if self.fn is max else operator.lt
        proxy = tx.output.create_proxy("call_function", compare, (b.as_proxy(), a.as_proxy()), {})
        return b if _known(SymNodeVariable.create(tx, proxy)).as_python_constant() else a

    def make_known(self: Any, items: Any, maxlen: Any = None, **options: Any) -> None:
        if maxlen is not None and threading.get_ident() == owner:
            maxlen = _known(maxlen)
            if maxlen.is_python_constant() and maxlen.as_python_constant() == 0:
                items = []
        make_deque(self, items, maxlen, **options)

    def validate_known(tx: Any, maxlen: Any) -> Any:
        assert validate is not None
        # From torch 2.15 on it returns the number.
        return validate(tx, _known(maxlen) if threading.get_ident() == owner else maxlen)

    validated = staticmethod(validate_known)
    with (
        replaced_attribute(BuiltinVariable, "_call_min_max_binary", choose),
        replaced_attribute(DequeVariable, "__init__", make_known),
        replaced_attribute(DequeVariable, "validate_maxlen", validated)
        if validate is not None
        else contextlib.nullcontext(),
    ):
        yield


@contextlib.contextmanager
def making_texts_of_numbers() -> Iterator[None]:
    """Have Dynamo make texts of numbers as they are in a call, in this thread.

    It stops at a float of 0, for which a guard takes -0.0, too. Where hostjit leaves numbers open
    itself (`number_functions_of_python`), those of which texts are made are not.
    """
    owner = threading.get_ident()
    format_value = InstructionTranslatorBase._format_value

    def format_known(self: Any, *args: Any) -> None:
        if threading.get_ident() == owner and isinstance(self.stack[-1].realize(), SymNodeVariable):
            found = _known(self.pop())
            if found.python_type() is float and found.as_python_constant() == 0:
                unimplemented(
                    gb_type="text of a zero",
                    context=str(found),
                    explanation="Dynamo does not tell 0.0 from -0.0.",
                    hints=[],
                )
            self.push(found)
        format_value(self, *args)

    with replaced_attribute(InstructionTranslatorBase, "_format_value", format_known):
        yield


@contextlib.contextmanager
def knowing_divided_floats() -> Iterator[None]:
    """Have Dynamo know floats of which it takes remainders, in this thread.

    Where hostjit leaves numbers open itself, programs compute remainders as Python does.
    """
    owner = threading.get_ident()
    call_function = BuiltinVariable.call_function

    def call_known(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() == owner and self.fn in _DIVISIONS and any(map(_is_float, args)):
            args = [*map(_known, args)]
        return call_function(self, tx, args, kwargs)

    with replaced_attribute(BuiltinVariable, "call_function", call_known):
        yield


def _is_float(variable: Any) -> bool:
    """Whether a variable is an open float."""
    found = variable.realize()
    return isinstance(found, SymNodeVariable) and found.python_type() is float


def _known(variable: Any) -> Any:
    """Return the number that an open one is in this call, which a guard then holds it to."""
    found = variable.realize()
    if not isinstance(found, SymNodeVariable):
        return variable
    return ConstantVariable.create(found.evaluate_expr())


def _differ_in_type(a: Any, b: Any) -> bool:
    """Whether two variables are numbers of different types, one of them open."""
    found = [variable.realize() for variable in (a, b) if variable is not None]
    if len(found) < 2 or not any(isinstance(variable, SymNodeVariable) for variable in found):
        return False
    if not all(isinstance(variable, (SymNodeVariable, ConstantVariable)) for variable in found):
        return False
    kinds = [variable.python_type() for variable in found]
    return kinds[0] is not kinds[1] and all(kind in (bool, int, float) for kind in kinds)
