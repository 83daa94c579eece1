# SPDX-License-Identifier: Apache-2.0
"""What code calls for a pass of one of its loops: a compiled function, which may run several."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import types
from typing import Any

from torch._dynamo.eval_frame import skip_code

from hostjit import _C
from hostjit.bytecode.followed_calls import with_float_calls
from hostjit.bytecode.loop_items import ItemForm, with_items_looked_up
from hostjit.bytecode.loops import MOST_PASSES, PassVariables
from hostjit.bytecode.places import with_places
from hostjit.bytecode.splits import split_behind_gradients
from hostjit.capturing.errors import CaptureError
from hostjit.compiling.compilation import Compilation
from hostjit.parts.items_ahead import ITERATORS, items_ahead
from hostjit.parts.whole import Whole

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

    def give_up_recordings(self, reason: str = "") -> None:
        """Answer calls as before there were recordings; the whole may be recorded, rather.

        What gradients are computed in is first recorded up to there.
        """
        if not self.records_parts and split_behind_gradients(self.target) is not None:
            self.records_parts = True
            self._recorded = None
            self.answers_anew()
            return
        super().give_up_recordings(reason)
        self._whole.record(passes_gave_up=True)

    def note_single_pass(self) -> None:
        """Have the whole be recorded, rather, if that is not in vain."""
        self._whole.record()

    def _target_name(self) -> str:
        return self._whole.name


class PassOfIterator:
    """Runs passes of a loop over an iterator, and takes their items but the first.

    The last item is left to the loop, which gives its variable a value. Programs are given what the
    items are of, where they can look them up in that.
    """

    def __init__(self, body: types.FunctionType, whole: Whole, variables: PassVariables) -> None:
        self._body = body
        self._whole = whole
        self._variables = variables
        self._single = _compiled(body, whole, variables)
        self._of_forms: dict[ItemForm, _C.CompiledFunction | None] = {}
        self._looks_up = variables.item is not None
        self._singles = 0
        self._item = None if variables.item is None else variables.taken.index(variables.item)

    @property
    def functions(self) -> list[_C.CompiledFunction]:
        """What is called: for passes over a `range` or anything else, and over known items."""
        return [self._single, *(each for each in self._of_forms.values() if each is not None)]

    def __call__(self, *args: Any) -> Any:
        *given, items = args
        function = self._single
        most, step = 1, 0
        if type(items) is _RangeIterator:
            most = max(1, min(operator.length_hint(items), MOST_PASSES))
            if self._item is not None:
                of_range: Any = items.__reduce__()
                step = of_range[1][0].step
        elif self._looks_up and type(items) in ITERATORS:
            assert self._item is not None
            found = items_ahead(items, given[self._item])
            if found is not None and (made := self._of_form(found.form)) is not None:
                given = [each for i, each in enumerate(given) if i != self._item]
                given += [*found.tensors, found.place]
                function = made
                most, step = max(1, min(found.count, MOST_PASSES)), 1
        result = function(*given, most, step)
        if most > 1 and not (self._variables.tells_where and result[0]) and result[-1] > 1:
            skipped = result[-1] - 1
            next(itertools.islice(items, skipped, skipped), None)
            self._singles = 0
        elif function is not self._single:
            self._singles += 1
            # Finding out what items are of looks at all of them.
            self._looks_up = self._singles <= _MOST_SINGLES
        return result

    def _of_form(self, form: ItemForm) -> _C.CompiledFunction | None:
        """Return what is called for items of a form; None where each pass is given its item."""
        if form not in self._of_forms and len(self._of_forms) < _MOST_FORMS:
            taken, item = self._variables.taken, self._variables.item
            assert item is not None
            found = with_items_looked_up(self._body, taken, self._variables.given, item, form)
            self._of_forms[form] = None
            if found is not None:
                body, taken, item = found
                variables = dataclasses.replace(self._variables, taken=taken, item=item)
                self._of_forms[form] = _compiled(body, self._whole, variables)
        return self._of_forms.get(form)


# With so many passes one after the other that no program ran several of, none will.
_MOST_SINGLES = 64
_MOST_FORMS = 8
_RangeIterator = type(iter(range(0)))
skip_code(PassOfIterator.__call__.__code__)
