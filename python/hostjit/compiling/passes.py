# SPDX-License-Identifier: Apache-2.0
"""What code calls for a pass of one of its loops: a compiled function, which may run several."""

from __future__ import annotations

import functools
import itertools
import operator
import types
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code

from hostjit import _C
from hostjit.bytecode.followed_calls import with_float_calls
from hostjit.bytecode.loops import MOST_PASSES, PassVariables
from hostjit.bytecode.places import with_places
from hostjit.bytecode.row_items import with_rows
from hostjit.bytecode.splits import split_behind_gradients
from hostjit.capturing.errors import CaptureError
from hostjit.compiling.compilation import Compilation
from hostjit.compiling.whole import Whole

__all__ = ["PassCompilation", "compile_pass"]


def compile_pass(
    body: types.FunctionType, whole: Whole, variables: PassVariables | None
) -> _C.CompiledFunction | PassOfIterator:
    """Return what is called for a pass of a loop."""
    if variables is None or not variables.counts:
        return _compiled(body, whole, variables)
    return PassOfIterator(body, whole, variables)


def _compiled(
    body: types.FunctionType, whole: Whole, variables: PassVariables | None
) -> _C.CompiledFunction:
    compilation = PassCompilation(body, whole, variables)
    return _C.CompiledFunction(body, compilation, called_by_dynamo=True)


class PassCompilation(Compilation):
    """Specializes what a pass of a loop does; what it says, it says for the whole."""

    _is_part = True

    def __init__(
        self, function: types.FunctionType, whole: Whole, variables: PassVariables | None
    ) -> None:
        options = whole.options
        super().__init__(function, options.runtime, fallback=True, choices=options.choices())
        self._said = whole.said
        self._whole = whole
        self.pass_variables = variables
        # Of what is recorded to its end, one program runs several.
        self.records_parts = variables is None
        self._records_all = variables is not None

    @functools.cached_property
    def recorded_target(self) -> types.FunctionType:
        body: Any = self.target
        return with_places(with_float_calls(body))

    def _record_instead(self, error: CaptureError, *, in_loop: bool) -> _C.Specialization | None:
        """Record the ways out of a pass, which are few: to the next pass, or out of the loop."""
        return super()._record_instead(error, in_loop=True)

    def give_up_recordings(self) -> None:
        """Answer calls as before there were recordings; the whole may be recorded, rather.

        What gradients are computed in is first recorded up to there.
        """
        if not self.records_parts and split_behind_gradients(self.target) is not None:
            self.records_parts = True
            self._recorded = None
            self.answers_anew()
            return
        super().give_up_recordings()
        self._whole.record(passes_gave_up=True)

    def note_single_pass(self) -> None:
        """Have the whole be recorded, rather, if that is not in vain."""
        self._whole.record()

    def _target_name(self) -> str:
        return self._whole.name


class PassOfIterator:
    """Runs passes of a loop over an iterator, and takes their items but the first.

    The last item is left to the loop, which gives its variable a value. Of an iterator over rows of
    a tensor, programs are given the tensor.

    Attributes:
        functions: what is called for passes over a `range` or anything else, and over rows.
    """

    def __init__(self, body: types.FunctionType, whole: Whole, variables: PassVariables) -> None:
        self.functions = [_compiled(body, whole, variables)]
        self._tells_where = variables.tells_where
        self._of_rows = with_rows(body, variables)
        self._singles = 0
        self._whole = whole
        self._item = None if variables.item is None else variables.taken.index(variables.item)

    def __call__(self, *args: Any) -> Any:
        *given, items = args
        function = self.functions[0]
        most, step = 1, 0
        if type(items) is _RangeIterator:
            most = max(1, min(operator.length_hint(items), MOST_PASSES))
            if self._item is not None:
                of_range: Any = items.__reduce__()
                step = of_range[1][0].step
        elif type(items) is _TupleIterator and self._of_rows is not None:
            assert self._item is not None
            if (rows := _rows_ahead(items, given[self._item])) is not None:
                given[self._item], place = rows
                given.append(place)
                function = self._over_rows()
                most, step = max(1, min(operator.length_hint(items), MOST_PASSES)), 1
        result = function(*given, most, step)
        if most > 1 and not (self._tells_where and result[0]) and result[-1] > 1:
            skipped = result[-1] - 1
            next(itertools.islice(items, skipped, skipped), None)
            self._singles = 0
        elif function is not self.functions[0]:
            self._singles += 1
            if self._singles > _MOST_SINGLES:
                self._of_rows = None  # finding out that there are rows looks at all of them
        return result

    def _over_rows(self) -> _C.CompiledFunction:
        if len(self.functions) == 1:
            assert self._of_rows is not None
            body, variables = self._of_rows
            self.functions.append(_compiled(body, self._whole, variables))
        return self.functions[1]


# With so many passes over rows one after the other that no program ran several of, none will.
_MOST_SINGLES = 64
_RangeIterator = type(iter(range(0)))
_TupleIterator = type(iter(()))
skip_code(PassOfIterator.__call__.__code__)


def _rows_ahead(items: Any, item: Any) -> tuple[torch.Tensor, int] | None:
    """Return the tensor whose rows an iterator over a tuple goes over, and which one is `item`.

    That is what `for row in x` goes over. None where the tuple has anything else.
    """
    _, (values,), behind = items.__reduce__()
    if behind < 1 or values[behind - 1] is not item:
        return None
    rows = _C.tensor_of_rows(values)
    return (rows, behind - 1) if rows is not None and rows.is_cpu else None
