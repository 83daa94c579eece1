# SPDX-License-Identifier: Apache-2.0
"""One recording as a specialization: its program, what is checked, and what it leaves behind."""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import tensor_leaves
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.program import ArgumentLeaf
from hostjit.capturing.thread_state import ThreadState
from hostjit.capturing.tracing import is_random
from hostjit.compiling.output_descriptions import describe_output
from hostjit.compiling.specialize import describe_backward
from hostjit.recording.calls.mismatch import Signature, difference_of_modes, named_arguments
from hostjit.recording.calls.opened_objects import Opened, expanded
from hostjit.recording.errors import refusal_of
from hostjit.recording.graph.inputs import describe
from hostjit.recording.graph.read_numbers import LARGEST_SMALL_INT
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.program import (
    ReadGraph,
    RecordedProgram,
    check_written_memory,
    make_program,
)
from hostjit.recording.programs.pruning import prune
from hostjit.recording.programs.results import Results
from hostjit.recording.programs.ways import Way
from hostjit.recording.reach.state import Counter, State
from hostjit.recording.replays.backward_pass import BackwardPass, unhooked_leaves
from hostjit.recording.replays.checks import ReplayChecks, assign_gradients
from hostjit.recording.replays.outside import TensorsOutside, touched_gradients
from hostjit.recording.replays.places import Places, StaticInputs, moved_off
from hostjit.recording.replays.pruned import Pruned
from hostjit.recording.replays.read_guard import VALUE_READ, ReadGuard

if TYPE_CHECKING:
    from hostjit.recording.recordings import Recordings

__all__ = ["Recording", "Replay"]

# A recording is worth what it takes if it may be used for so many times as long.
_WORTH = 10
# Of numbers among the arguments that may be any.
_BOUNDS = {int: (-LARGEST_SMALL_INT, LARGEST_SMALL_INT), float: (None, None)}


@dataclasses.dataclass(frozen=True)
class Recording:
    """What was recorded of a call.

    Attributes:
        operators: how many operators ran.
        inputs: tensors that each call brings or that are found anew.
        reads: how many values Python code has seen, which each replay compares.
        pruned: how many of the operators run at the recording only.
    """

    operators: int
    inputs: int
    reads: int
    pruned: int


class _Counts:
    """What moves counters, as `_C.Specialization` takes it.

    Attributes:
        numbers: the counters, as open numbers.
        results: what they are behind the call.
        stores: where that goes.
    """

    def __init__(self, counters: Sequence[Counter], first: int) -> None:
        """`first`: the slot of the first of them."""
        count = len(counters)
        self.numbers: list[tuple[Any, ...]] = [
            (int, None, None, counter.holder, counter.name) for counter in counters
        ]
        sources = [("open", first + index) for index in range(count)]
        sources += [("object", counter.amount) for counter in counters]
        steps = [(operator.add, [index, count + index]) for index in range(count)]
        self.results: tuple[Any, ...] = (sources, steps) if counters else ()
        self.stores = [
            (counter.holder, counter.name, 2 * count + index)
            for index, counter in enumerate(counters)
        ]


class Replay:
    """Answers calls like one that was recorded.

    Attributes:
        recording: what was recorded.
        reads_floats: it is for floats that the code has read of tensors.
        chooses: all values that it is for lead out of statements that choose, or do not.
        is_repeated: it runs passes of a loop.
        way: through a pass, which it repeats, if it does; None where others can't join it.
        checks: what else is asked about a call.
    """

    recording: Recording
    checks: ReplayChecks
    is_repeated = False
    way: Way | None = None
    # Its program is for passes that this one is for, as well.
    _joined: Replay | None = None

    def __init__(
        self,
        owner: Recordings,
        recorder: Recorder,
        state: State,
        results: Results,
        wants_gradients: bool,
        aligned: Sequence[int | torch.Tensor],
        leaves: Sequence[torch.Tensor],
        signature: Signature,
        opened: Opened,
        counters: Sequence[Counter],
    ) -> None:
        self._owner = owner
        self._state = state
        self._signature = signature
        self._opened = dict(opened)
        self._recorder: Recorder | None = recorder
        self._results: Results | None = results
        self._wants_gradients = wants_gradients
        self._aligned = aligned
        self._leaves: Sequence[torch.Tensor] = leaves
        self.reads_floats = recorder.reads_floats
        self.chooses = all(read.is_of_choice for read in recorder.reads)
        self._ready = self._seconds = 0.0
        self._random = recorder.draws, recorder.used  # which the program has by number
        self._numbers = [
            (x.type, *_BOUNDS[x.type], *(x.place or (x.position,))) for x in recorder.opened
        ]
        self._counts = _Counts(counters, len(self._numbers))
        self._numbers += self._counts.numbers

    def note_cost(self, begin: float) -> None:
        """Note that the recording is ready, which was begun at a time of `time.perf_counter`."""
        self._ready = time.perf_counter()
        self._seconds = self._ready - begin

    def live_inputs(self) -> list[tuple[Any, ...]]:
        """Return the descriptions of inputs that are found anew at each call."""
        reads = self.checks.reads
        bindings = [*self._inputs, *([] if reads is None else reads.inputs)]
        return [each for each in bindings if isinstance(each, tuple)]

    def was_in_vain(self) -> bool:
        """Tell whether it has not been ready for long, as measured by how long it took to make."""
        return time.perf_counter() - self._ready < _WORTH * self._seconds

    @staticmethod
    def behind(specialization: _C.Specialization) -> Replay | None:
        """Return what a specialization replays; None for what was compiled instead."""
        replay = getattr(specialization.describe()["revalidate"], "__self__", None)
        return replay if isinstance(replay, Replay) else None

    def build(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _C.Specialization:
        """Compile, and return the specialization for calls like this one. Raises CaptureError.

        The function's list alone holds it: what both it and Python code held, the garbage
        collector would take to be in use.
        """
        recorder, results = self._recorder, self._results
        assert recorder is not None and results is not None
        owner, state = self._owner, self._state
        program, pruned = self._make_program(recorder, results, args)
        compiled, backward = self._compile(program)
        self._modes = ThreadState.current()
        self._inputs = list(map(describe, program.inputs))
        result, *assigned = describe_output(program.output)[1]
        count = sum(len(store.outputs) for store in results.stores)
        assigned, stored = assigned[: len(assigned) - count], assigned[len(assigned) - count :]
        if assigned:
            result = ("call", assign_gradients, [result, *assigned])
        if stored:
            places = [(x.owner.__dict__, x.name, x.stays is not None) for x in results.stores]
            result = ("assign", places, [result, *stored])
        changes = bool(program.mutated or assigned or is_random(program.graph_module.graph))
        has_stores = bool(self._counts.stores or stored)
        if recorder.handled and (changes or has_stores):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"it handles errors of {recorder.handled}, and has effects that no replay takes "
                "back",
                hint="do what may raise in a function of its own",
            )
        self._look_at_call(args, kwargs, recorder, program, pruned)
        with self._outside.with_earlier_gradients():
            specialization = _C.Specialization(
                args=args,
                kwargs=kwargs,
                program=compiled,
                bindings=self._inputs,
                output=result,
                watches=self._watches(),
                revalidate=self._revalidate,
                mutated=list(program.mutated),
                runtime=owner.runtime,
                numbers=self._numbers,
                reuse_outputs=owner.reuse_outputs and backward is None and not (assigned or stored),
                backward=backward,
                outside=self._outside.all,
                condition=self.checks.condition(),
                leaf_checks=self.checks.leaf_checks(),
                reads=self.checks.compiled_reads,
                static_leaves=self._static.leaves,
                aligned=self._aligned,
                results=self._counts.results,
                stores=self._counts.stores,
                # A pass that is computed ahead may raise, and never run. Eager counts, and assigns,
                # up to where an operator raises.
                retries=bool(recorder.handled)
                or (program.is_repeated and not program.mutated)
                or (has_stores and not changes),
                in_inference_mode=results.in_inference_mode,
                by_fields=ByFields.of(*self._opened).described(),
            )
        owner.note_program(compiled)
        self.is_repeated = program.is_repeated
        if program.is_single_pass:
            owner.note_single_pass()
        operators = [node for node in recorder.graph.nodes if node.op == "call_function"]
        count = pruned.operators if pruned is not None else 0
        self.recording = Recording(len(operators), len(self._inputs), len(recorder.reads), count)
        self._recorder = self._results = None
        self._leaves = ()
        state.let_go()
        return specialization

    def _make_program(
        self, recorder: Recorder, results: Results, args: tuple[Any, ...]
    ) -> tuple[RecordedProgram, Pruned | None]:
        """Return the functional program, and what of it runs once."""
        owner = self._owner
        wants_gradients = self._wants_gradients
        is_apart = self._are_apart()
        known = [replay for replay in owner.ways() if is_apart and replay._is_for_calls_like(args)]
        program = make_program(
            recorder,
            results,
            wants_gradients,
            owner.pass_variables,
            args,
            self._leaves,
            [replay.way for replay in known if replay.way is not None],
        )
        if program.joined is not None:
            self._joined = known[program.joined]
        if program.way is not None and is_apart:
            self.way = program.way.without_arguments()
            self._open_types = {
                number.argument: number.type
                for number in recorder.opened
                if number.argument is not None
            }
            self._numberless = Signature(_without_numbers(args, self._open_types))
        check_written_memory(program)
        if _C.capture_dump_enabled():
            _C.dump_capture(owner.name, program.graph_module.print_readable(False))
        if not owner.options.prune or program.backward is not None:
            return program, None
        return prune(program, lambda graph: owner.compile_graph(graph, f"{owner.name}_once"))

    def _are_apart(self) -> bool:
        """Tell whether the tensors among the arguments are nothing else as well.

        Where one is, a recording need not know which of them the code meant.
        """
        found = {*map(id, self._leaves)}
        others = {*self._state.tensors, *map(id, self._state.shared)}
        return len(found) == len(self._leaves) and found.isdisjoint(others)

    def _compile(self, program: RecordedProgram) -> tuple[_C.CompiledProgram, Any]:
        """Return the program compiled, and how gradients are computed, if results need them."""
        owner = self._owner
        compiled = owner.compile_graph(program.graph_module.graph, owner.name)
        if program.backward is None:
            return compiled, None
        graph = program.backward.graph_module.graph
        backward = owner.compile_graph(graph, f"{owner.name}_backward")
        return compiled, describe_backward(program.backward, compiled, backward, owner.runtime)

    def _look_at_call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        recorder: Recorder,
        program: RecordedProgram,
        pruned: Pruned | None,
    ) -> None:
        """Note what has to hold at each call. Raises CaptureError where no check can tell."""
        state = self._state
        leaves = self._leaves_of(args, kwargs)
        self._outside = TensorsOutside(recorder, state, program.inputs, self._leaves)
        self._backward_pass: BackwardPass | None = None
        if recorder.ran_backward:
            self._backward_pass = BackwardPass([tensor for tensor, _ in state.tensors.values()])
        arguments: dict[str, Any] = {}
        if self._owner.options.static_inputs:
            plain = expanded(args, kwargs, self._opened)
            arguments = named_arguments(self._owner.target, *plain)
        self._static = StaticInputs(self._owner.options.static_inputs, arguments, leaves)
        written = [program.inputs[index] for index in program.mutated]
        touched = {id(owner): has for owner, has in touched_gradients(recorder, state)}
        self.checks = ReplayChecks(
            [(i, touched[id(leaf)]) for i, leaf in enumerate(leaves) if id(leaf) in touched],
            [binding.index for binding in written if isinstance(binding, ArgumentLeaf)],
            pruned,
            self._read_guard(recorder, program.reads) if program.reads else None,
            self._opened,
            state.settings(),
            unhooked_leaves(recorder.sources, leaves) if recorder.ran_backward else [],
            recorder.ran_backward,
            # Code may ask whether they have attributes of their own.
            [i for i, leaf in enumerate(leaves) if state.asks_for_absent and not leaf.__dict__],
        )
        if self._joined is not None:
            self.checks.join(self._joined.checks)
            self._outside.join(self._joined._outside)
        self._places = Places(args, kwargs, leaves, self._outside.all)

    @property
    def reads_draws(self) -> bool:
        """Whether the code reads what the default generator draws, which is drawn to compare it."""
        reads = self.checks.reads
        return reads is not None and reads.is_random and not reads.generators

    def difference(
        self, arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Say how a call differs from the recorded one; "" where that is not known."""
        text = self._signature.difference(arguments)
        if text:
            return text
        changed = self._state.change()
        if changed:
            return f"{changed} is not what it was, which the call reads"
        text = difference_of_modes(self._modes, ThreadState.current())
        text = text or self._outside.difference()
        if text:
            return text
        if self._hooked_otherwise():
            return "hooks of a backward pass, or a mode of it, are not what they were"
        leaves = self._leaves_of(args, kwargs)
        return (
            self._static.difference(leaves)
            or self._difference_of_alignment(leaves)
            or self.checks.difference(leaves, arguments)
            or self._places.difference(args, kwargs, leaves)
        )

    def differs_by_values(
        self, arguments: Mapping[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Tell whether nothing but the values that the code reads makes a call another."""
        return self.difference(arguments, args, kwargs).startswith(VALUE_READ)

    def _difference_of_alignment(self, leaves: Sequence[torch.Tensor]) -> str:
        moved = moved_off(self._aligned, leaves)
        if moved is None:
            return ""
        known = isinstance(moved, torch.Tensor) and self._state.tensors[id(moved)][1]
        what = known or f"tensor {moved} of the arguments"
        return f"{what} begins at an address that 16 does not divide"

    def _leaves_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        return tensor_leaves(*expanded(args, kwargs, self._opened))

    def _watches(self) -> list[tuple[Any, ...]]:
        watches = [*self._state.watches(), *self._outside.watches()]
        if self._backward_pass is not None:
            watches += self._backward_pass.watches()
        if self.checks.pruned is not None:
            watches += self.checks.pruned.watches()
        if self._joined is not None:
            watches += self._joined._watches()
        return watches

    def _hooked_otherwise(self) -> bool:
        return self._backward_pass is not None and self._backward_pass.differs()

    def is_current(self) -> bool:
        """Tell whether all that the call met besides its arguments is what it was.

        Not whether there are gradients, what is in tensors, and what runs once: replays look.
        """
        if self._joined is not None and not self._joined.is_current():
            return False
        return self._state.holds() and not self._hooked_otherwise() and self._outside.are_current()

    def _is_for_calls_like(self, args: tuple[Any, ...]) -> bool:
        """Tell whether another call can only have gone another way by values that the code reads.

        `args`: its arguments; open numbers may be any.
        """
        return (
            not self._numberless.difference(_without_numbers(args, self._open_types))
            and self.is_current()
            and not difference_of_modes(self._modes, ThreadState.current())
        )

    def _revalidate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        if not self.is_current() or not self._outside.have_gradients():
            return None
        if not self._places.has_same_anchors(self._leaves_of(args, kwargs)):
            return None
        self._inputs = self.checks.renewed(self._inputs)
        stores = self._counts.stores
        return (
            *(self._watches(), self._inputs, self._numbers, self._outside.all),
            *(([], []), stores, None),
        )

    def _read_guard(self, recorder: Recorder, reads: ReadGraph) -> ReadGuard:
        graph = reads.graph_module.graph
        guard = ReadGuard(
            self._owner.compile_graph(graph, f"{self._owner.name}_reads"),
            list(map(describe, reads.inputs)),
            reads.expected,
            reads.where,
            generators=recorder.generators_given(),
            is_random=is_random(graph),
            runtime=self._owner.runtime,
        )
        if recorder.opened and guard.compiled() is None:
            raise refusal_of("what it reads takes numbers that only compiled code is given")
        return guard


def _without_numbers(args: Sequence[Any], open_types: Mapping[int, type]) -> dict[str, Any]:
    """The arguments of a call by their places, numbers that may be any by their types."""
    return {
        str(index): open_types[index] if type(value) is open_types.get(index) else value
        for index, value in enumerate(args)
    }
