# SPDX-License-Identifier: Apache-2.0
"""One recording as a specialization: its program, what is checked, and what it leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import containers_in, tensor_leaves
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.instances import is_a
from hostjit.capturing.program import ArgumentLeaf, BoundTensor
from hostjit.capturing.tensors import TensorFacts
from hostjit.capturing.thread_state import ThreadState
from hostjit.capturing.tracing import is_random
from hostjit.recording.calls.mismatch import (
    Signature,
    difference_of_facts,
    difference_of_gradient,
    difference_of_modes,
)
from hostjit.recording.calls.opened_objects import Opened, expanded
from hostjit.recording.graph.inputs import Bound, Gradient, Leaf, describe
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.programs.program import check_written_memory, guard_graph, make_program
from hostjit.recording.programs.pruning import prune
from hostjit.recording.programs.results import Results
from hostjit.recording.reach.state import State
from hostjit.recording.recorded_call import moved_off, refusal_of
from hostjit.recording.replays.checks import ReplayChecks, anchors_of, assign_gradients
from hostjit.recording.replays.pruned import Pruned
from hostjit.recording.replays.read_guard import ReadGuard
from hostjit.recording.running.gradient_hooks import backward_is_plain, has_hooks, hooks_of
from hostjit.specialize import describe_backward, describe_output

if TYPE_CHECKING:
    from hostjit.recording.recordings import Recordings

__all__ = ["Recording", "Replay"]


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


class Replay:
    """Answers calls like one that was recorded.

    Attributes:
        recording: what was recorded.
        reads_floats: it is for floats that the code has read of tensors.
        checks: what else is asked about a call.
    """

    recording: Recording
    checks: ReplayChecks

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
        self.reads_floats = any(read.expected.is_floating_point() for read in recorder.reads)
        self._ran_backward = recorder.ran_backward
        self._draws = recorder.draws  # which the program has by number
        self._static: list[tuple[str, int, int]] = []

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
        program = make_program(recorder, results, self._wants_gradients)
        check_written_memory(program)
        if _C.capture_dump_enabled():
            _C.dump_capture(owner.name, program.graph_module.print_readable(False))
        pruned: Pruned | None = None
        if owner.options.prune and program.backward is None:
            program, pruned = prune(
                program, lambda graph: owner.compile_graph(graph, f"{owner.name}_once")
            )
        compiled = owner.compile_graph(program.graph_module.graph, owner.name)
        plan = None
        if program.backward is not None:
            graph = program.backward.graph_module.graph
            backward = owner.compile_graph(graph, f"{owner.name}_backward")
            plan = describe_backward(program.backward, compiled, backward, owner.runtime)
        self._modes = ThreadState.current()
        self._facts = [
            (binding.tensor, binding.facts)
            for binding in program.inputs
            if type(binding) is BoundTensor and not binding.is_constant
        ]
        used = {id(tensor) for tensor, _ in self._facts}
        others = [x for key, (x, _) in state.tensors.items() if key not in used]
        others = [x for x in others if x.layout is torch.strided]
        gradients = {id(s.tensor) for s in recorder.sources if isinstance(s, Gradient)}
        self._met = [(x, TensorFacts.of(x)) for x in others if id(x) not in gradients]
        bound = [s.tensor for s in recorder.sources if isinstance(s, Bound)]
        self._outside = list({id(x): x for x in (*bound, *others, *state.shared)}.values())
        self._inputs = list(map(describe, program.inputs))
        self._gradients = self._touched_gradients(recorder)
        self._hooks = self._hooks_outside()
        self._plain = [tensor for tensor, _ in self._hooks if _C.is_plain_leaf(tensor)]
        output = describe_output(program.output)
        result, *assigned = output[1]
        if assigned:
            result = ("call", assign_gradients, [result, *assigned])
        self._find_static(args, kwargs)
        written = [program.inputs[index] for index in program.mutated]
        has_effects = program.mutated or assigned or is_random(program.graph_module.graph)
        if recorder.handled and has_effects:
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"it handles errors of {recorder.handled}, and has effects that no replay takes "
                "back",
                hint="do what may raise in a function of its own",
            )
        read = [(s.owner, s.tensor) for s in recorder.sources if isinstance(s, Gradient)]
        self._gradient_facts = [(owner, TensorFacts.of(gradient)) for owner, gradient in read]
        self.checks = ReplayChecks(
            self._leaf_checks(args, kwargs, recorder),
            [binding.index for binding in written if isinstance(binding, ArgumentLeaf)],
            pruned,
            self._read_guard(recorder) if recorder.reads else None,
            self._opened,
            state.settings(),
            self._unhooked(args, kwargs, recorder),
            self._ran_backward,
            self._unmarked(args, kwargs),
        )
        self._sharing = _sharing(self._leaves_of(args, kwargs), self._outside)
        self._equal_containers = _equal_containers(args, kwargs)
        self._anchors = anchors_of(self._leaves_of(args, kwargs), self._outside)
        with _gradients(read):
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
                reuse_outputs=owner.reuse_outputs and plan is None and not assigned,
                backward=plan,
                outside=self._outside,
                condition=self.checks.condition(),
                leaf_checks=self.checks.leaf_checks(),
                reads=self.checks.compiled_reads,
                static_leaves=[(leaf, address) for _, leaf, address in self._static],
                aligned=self._aligned,
                retries=bool(recorder.handled),
                in_inference_mode=results.in_inference_mode,
                by_fields=self._opened,
            )
        owner.note_program(compiled)
        operators = [node for node in recorder.graph.nodes if node.op == "call_function"]
        count = pruned.operators if pruned is not None else 0
        self.recording = Recording(len(operators), len(self._inputs), len(recorder.reads), count)
        self._recorder = self._results = None
        self._leaves = ()
        state.let_go()
        return specialization

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
        changed = self._state.change(watched_only=True)
        if changed:
            return f"{changed} is not what it was, which the call reads"
        text = difference_of_modes(self._modes, ThreadState.current())
        for tensor, facts in (*self._facts, *self._met):
            text = text or difference_of_facts(self._name(tensor), facts, TensorFacts.of(tensor))
        for owner, has in self._gradients:
            if (owner.grad is not None) != has:
                text = text or difference_of_gradient(self._name(owner), has)
        for owner, facts in self._gradient_facts:
            if not text and owner.grad is not None:
                name = f"the gradient of {self._name(owner)}"
                text = difference_of_facts(name, facts, TensorFacts.of(owner.grad))
        if text:
            return text
        if self._hooked_otherwise():
            return "hooks of a backward pass, or a mode of it, are not what they were"
        leaves = self._leaves_of(args, kwargs)
        for name, leaf, address in self._static:
            if leaves[leaf].data_ptr() != address:
                return f"argument '{name}' is a static input, and is in other memory"
        moved = moved_off(self._aligned, leaves)
        if moved is not None:
            known = isinstance(moved, torch.Tensor) and self._state.tensors[id(moved)][1]
            what = known or f"tensor {moved} of the arguments"
            return f"{what} begins at an address that 16 does not divide"
        text = self.checks.difference(leaves, arguments)
        if not text and self._sharing != _sharing(leaves, self._outside):
            return "which of its tensors are one, or share memory, is not as it was"
        if not text and self._equal_containers != _equal_containers(args, kwargs):
            return "which of its lists and dicts are one is not as it was"
        return text

    def _leaves_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        return tensor_leaves(*expanded(args, kwargs, self._opened))

    def _name(self, tensor: torch.Tensor) -> str:
        return f"'{self._state.tensors[id(tensor)][1]}'"

    def _watches(self) -> list[tuple[Any, ...]]:
        watches = self._state.watches()
        watches += [("tensor", tensor) for tensor, _ in self._met]
        for owner, has_gradient in self._gradients:
            watches.append(("has_gradient" if has_gradient else "no_gradient", owner))
        if self._ran_backward:
            watches += [("hooks", tensor) for tensor, _ in self._hooks]
            watches += [("plain_leaf", tensor) for tensor in self._plain]
            watches.append(("plain_backward",))
        if self.checks.pruned is not None:
            watches += self.checks.pruned.watches()
        return watches

    def is_current(self) -> bool:
        """Tell whether all that the call met besides its arguments is what it was.

        Not whether there are gradients, what is in tensors, and what runs once: replays look.
        """
        if not self._state.holds() or self._hooked_otherwise():
            return False
        return all(TensorFacts.of(x) == facts for x, facts in (*self._facts, *self._met))

    def _revalidate(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        if not self.is_current():
            return None
        if any((owner.grad is not None) != has for owner, has in self._gradients):
            return None
        for owner, facts in self._gradient_facts:
            if owner.grad is None or TensorFacts.of(owner.grad) != facts:
                return None
        if anchors_of(self._leaves_of(args, kwargs), self._outside) != self._anchors:
            return None
        self._inputs = self.checks.renewed(self._inputs)
        return self._watches(), self._inputs, [], self._outside, [], []

    def _read_guard(self, recorder: Recorder) -> ReadGuard:
        """Raises CaptureError where what was read cannot be computed without an effect."""
        module, inputs = guard_graph(recorder, recorder.reads)
        random = is_random(module.graph)
        return ReadGuard(
            self._owner.compile_graph(module.graph, f"{self._owner.name}_reads"),
            list(map(describe, inputs)),
            [read.expected for read in recorder.reads],
            [read.where for read in recorder.reads],
            generators=[draw.generator for draw in recorder.draws],
            is_random=random,
            runtime=self._owner.runtime,
        )

    def _touched_gradients(self, recorder: Recorder) -> list[tuple[torch.Tensor, bool]]:
        """The tensors whose `.grad` matters, and whether there was one when the call began."""
        inputs = {id(s.owner) for s in recorder.sources if isinstance(s, Gradient)}
        leaves = set(map(id, self._leaves))
        touched = [
            (owner, before is not None)
            for owner, before in self._state.gradients.values()
            if owner.grad is not before or id(owner) in inputs or id(owner) in recorder.asked
        ]
        return [(owner, has) for owner, has in touched if id(owner) not in leaves]

    def _leaf_checks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder
    ) -> list[tuple[int, bool]]:
        """The same for the arguments, by leaf."""
        found = []
        for index, leaf in enumerate(self._leaves_of(args, kwargs)):
            known = self._state.gradients.get(id(leaf))
            if known is None:
                continue
            if leaf.grad is not known[1] or id(leaf) in recorder.asked:
                found.append((index, known[1] is not None))
        return found

    def _hooks_outside(self) -> list[tuple[torch.Tensor, tuple[Any, Any]]]:
        """The tensors that a backward pass may reach, and where their hooks are."""
        if not self._ran_backward:
            return []
        tensors = [x for x, _ in self._state.tensors.values() if x.requires_grad]
        return [(tensor, hooks_of(tensor)) for tensor in tensors]

    def _hooked_otherwise(self) -> bool:
        """Tell whether a backward pass would be another one than it was."""
        if not self._ran_backward:
            return False
        now = ((hooks_of(tensor), hooks) for tensor, hooks in self._hooks)
        differs = any(a is not b for pair in now for a, b in zip(*pair, strict=True))
        return differs or not (all(map(_C.is_plain_leaf, self._plain)) and backward_is_plain())

    def _unhooked(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder
    ) -> list[int]:
        """The arguments that a backward pass reaches, by leaf.

        Raises CaptureError for hooks, and for tensors with a graph that the pass may go on into.
        """
        if not self._ran_backward:
            return []
        for source in recorder.sources:
            if isinstance(source, Gradient) or not source.tensor.requires_grad:
                continue
            if not source.tensor.is_leaf:
                raise refusal_of(
                    "it runs a backward pass, and takes a tensor that was computed outside with "
                    "gradients, where the pass may go on"
                )
            if not _C.is_plain_leaf(source.tensor):
                raise refusal_of("nodes of graphs have hooks, which a backward pass runs")
        leaves = self._leaves_of(args, kwargs)
        used = {source.index for source in recorder.sources if isinstance(source, Leaf)}
        found = [index for index in sorted(used) if leaves[index].requires_grad]
        if any(has_hooks(leaves[index]) for index in found):
            raise refusal_of("an argument has hooks, which a backward pass runs")
        return found

    def _unmarked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
        """The arguments without attributes of their own, by leaf, if the code may ask for some."""
        if not self._state.asks_for_absent:
            return []
        leaves = self._leaves_of(args, kwargs)
        return [index for index, leaf in enumerate(leaves) if not leaf.__dict__]

    def _find_static(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        from hostjit.recording.calls.mismatch import named_arguments

        wanted = self._owner.options.static_inputs
        if not wanted:
            return
        leaves = self._leaves_of(args, kwargs)
        named = named_arguments(self._owner.target, *expanded(args, kwargs, self._opened))
        for name in wanted:
            for tensor in tensor_leaves((named[name],), {}) if name in named else ():
                leaf = next(i for i, found in enumerate(leaves) if found is tensor)
                self._static.append((name, leaf, tensor.data_ptr()))


def _equal_containers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[int]:
    """Return of each list and dict among the arguments where it is first."""
    found = [id(x) for x in containers_in(args, kwargs) if is_a(x, (list, dict))]
    return [found.index(container) for container in found]


def _sharing(leaves: Sequence[torch.Tensor], outside: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return how many tensors and how many memories there are among those of a call."""
    tensors = [*leaves, *outside]
    memories = {x.untyped_storage()._cdata for x in tensors if x.layout is torch.strided}
    return len(set(map(id, tensors))), len(memories)


@contextlib.contextmanager
def _gradients(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
    """Give tensors the gradients that they had when the call began, which is over."""
    now = [(owner, owner.grad) for owner, _ in pairs]
    try:
        for owner, gradient in pairs:
            owner.grad = gradient
        yield
    finally:
        for owner, after in now:
            owner.grad = after
