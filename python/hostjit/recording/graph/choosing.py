# SPDX-License-Identifier: Apache-2.0
"""Both ways through a statement of a recorded call that chooses by a value.

Of `if cost < best: best, plan = cost, trial` the recorded call goes the way that eager would. The
other one is computed as well, and the graph has what each variable becomes by either answer: a
replay compares nothing. What the code itself has stays the very tensor that it would have, under
another name: whatever it goes on to do with that, the recorded call is right, and the recording is
not used where a selected copy would not be.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.bytecode.choices import Chain, Choice, is_of_choice, is_of_tensors
from hostjit.bytecode.uses import uses_of_variable
from hostjit.capturing.instances import instance_dict, is_one_of
from hostjit.capturing.results.outputs import IMMUTABLE_TYPES, same_constant
from hostjit.capturing.signal_errors import raise_of_handler
from hostjit.recording.code.handlers import may_raise
from hostjit.recording.code.libraries import is_own
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.read_numbers import LARGEST_SMALL_INT, TENSORS, ReadNumber, are_kept
from hostjit.recording.graph.recorded_graph import memory_of
from hostjit.recording.graph.references import replace_everywhere
from hostjit.recording.reach.attributes import as_defined

if TYPE_CHECKING:
    from hostjit.recording.graph.recorder import Recorder

__all__ = ["Choosing"]

aten = torch.ops.aten

_MODULES = (torch, torch.linalg, torch.special, torch.nn.functional)
_FUNCTIONS = frozenset({"float", "int", "abs", "min", "max", "len"})
_PLAIN = (
    *(bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.Size),
    ReadNumber,
)
# Where both ways are computed, one of them is in vain: a few microseconds.
_MOST_COST = 1 << 15
_PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
# So much is looked at of what is in containers.
_MOST_ITEMS = 64


class _CannotChooseError(Exception):
    """The ways through a statement lead to what cannot be selected."""


class _Way:
    """One of the ways through a statement, while it runs.

    Attributes:
        is_taken: eager would go it.
        others: a bool that tells at a replay whether it is not gone.
        does_more: it has done more than compute.
        cost: of what it has computed, see `_cost`.
    """

    def __init__(self, others: torch.Tensor, *, is_taken: bool) -> None:
        self.is_taken = is_taken
        self.others = others
        self.does_more = False
        self.cost = 0


class Choosing:
    """The statements of a recorded call that choose, as a `Chooser`.

    Attributes:
        ways: those that run now, from the outermost on.
        is_refused: others may tell what was selected from a copy.
        outside: of what may be there before the call, whether it is, by nodes.
        originals: what the code would have in place of tensors that it has, by the ids of these.
        aliases: those tensors.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._reference = weakref.ref(recorder)  # which has this one
        self.ways: list[_Way] = []
        # Of each variable that was selected: what it is in the graph, and the memory of what it
        # may be.
        self._selected: list[tuple[torch.fx.Node, set[int]]] = []
        self.is_refused = False
        self.outside: dict[torch.fx.Node, torch.Tensor] = {}
        self.originals: dict[int, torch.Tensor] = {}
        self.aliases: list[torch.Tensor] = []

    @property
    def _recorder(self) -> Recorder:
        found = self._reference()
        assert found is not None
        return found

    def choose(self, choice: Choice, test: Any, taken: Sequence[Any]) -> Any:
        """Return what the function of a choice returns, given what its test has found."""
        recorder = self._recorder
        with Unseen():
            may_choose = not recorder.problem and self._may_choose(choice, test, taken)
        if not may_choose:
            return choice.run(bool(test), taken)
        with torch.no_grad():
            decision = test.detach().reshape(()).to(torch.bool, copy=True)
            denied = torch.logical_not(decision)
        with _disable_current_modes():
            answer = bool(decision)
        others = {True: denied, False: decision}  # where the other way is gone
        way = _Way(others[answer], is_taken=True)
        values = self._run(choice, answer, taken, way)
        count = len(recorder.reads)
        if not (way.does_more or recorder.problem):
            try:
                other = self._speculated(choice, not answer, taken, others[not answer])
                with Unseen():
                    return self._combined(choice, decision, answer, values, other)
            except Exception as error:
                raise_of_handler(error)
                # What eager computes is known: whatever goes wrong with the rest, it is compared.
                recorder.problem = ""
                del recorder.reads[count:]
        count = len(recorder.reads)
        bool(decision)  # which a replay compares
        for read in recorder.reads[count:]:
            read.is_of_choice = read.is_of_choice or self._leads_elsewhere(choice, values)
        return values

    def _leads_elsewhere(self, choice: Choice, values: Any) -> bool:
        """Whether a way leads out of a loop, say."""
        return choice.region.tells_where and values[0] != choice.join

    def _may_choose(self, choice: Choice, test: Any, taken: Sequence[Any]) -> bool:
        if not is_one_of(type(test), TENSORS) or test.numel() != 1:
            return False
        if test.layout is not torch.strided or not test.is_cpu:
            return False
        local = dict(zip(choice.region.taken, taken, strict=True))
        if any(name in local and not _is_number(local[name]) for name in choice.in_place):
            return False
        return all(_may_ask(chain, local, choice.ways[0]) for chain in choice.chains)

    def _run(self, choice: Choice, answer: bool, taken: Sequence[Any], way: _Way) -> Any:
        """Return what a way through a statement returns."""
        self.ways.append(way)
        try:
            return choice.run(answer, taken)
        finally:
            self.ways.pop()

    def _speculated(
        self, choice: Choice, answer: bool, taken: Sequence[Any], others: torch.Tensor
    ) -> Any:
        """Return what the way returns that eager does not go; raises whatever that raises."""
        recorder = self._recorder
        handled, has_hooks = recorder.handled, recorder.has_hooks
        try:
            values = self._run(choice, answer, taken, _Way(others, is_taken=False))
            if recorder.problem:
                raise _CannotChooseError
        finally:
            recorder.handled, recorder.has_hooks = handled, has_hooks
        return values

    def note_more(self) -> None:
        """Note that the ways which run now do more than compute."""
        for way in self.ways:
            way.does_more = True
        if not all(way.is_taken for way in self.ways):
            raise _CannotChooseError

    def note_operator(self, func: Any, args: Any) -> None:
        """Look at an operator that is about to run in some ways."""
        draws = torch.Tag.nondeterministic_seeded in func.tags
        for way in self.ways:
            way.cost += _cost(func, args)
        is_costly = any(way.cost > _MOST_COST for way in self.ways)
        if func._schema.is_mutable or draws or is_costly or may_raise(func, args):
            self.note_more()

    def as_answered(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return whether the ways that run now have a number, or others are gone."""
        value = tensor.item()
        same: torch.Tensor
        with self._recorder:
            same = aten.eq.Scalar(tensor, value)
            for way in reversed(self.ways):
                same = aten.logical_or.default(same, way.others)
        if not same.item():
            self.note_more()  # NaN
        return same

    def _combined(
        self, choice: Choice, decision: torch.Tensor, answer: bool, values: Any, other: Any
    ) -> Any:
        """Return what the function returns by either answer; raises _CannotChooseError."""
        place = choice.join
        told: tuple[Any, ...] = ()
        if choice.region.tells_where:
            (place, *values), (other_place, *other) = values, other
            told = (place,)
            if place != other_place:
                raise _CannotChooseError
        selected = _Selected(self._recorder, choice, decision, answer)
        made = [
            selected.variable(*each)
            for each in zip(choice.names_at(place), values, other, strict=True)
        ]
        self._selected += selected.tensors
        return (*told, *made)

    def note_writes(self, tensors: Iterable[torch.Tensor]) -> None:
        """Note that tensors are written: what was selected would be another by then."""
        written = set(map(memory_of, tensors))
        if any(not memory.isdisjoint(written) for _, memory in self._selected):
            self.is_refused = True

    def put_back(self) -> None:
        """Give whoever has an alias the tensor that the code would have, and its attributes."""
        for alias in self.aliases:
            vars(self.originals[id(alias)]).update(vars(alias))
        if self.aliases:
            aliases, self.aliases = self.aliases, []
            replace_everywhere(aliases, self.originals)

    def note_results(self, nodes: Sequence[torch.fx.Node], tensors: Sequence[torch.Tensor]) -> None:
        """Look at what others have of the tensors of a call, which has ended.

        Of what is selected, and what it is selected from, they may have one. A replay compares that
        this is not what was there before the call.
        """
        if any(map(vars, self.aliases)):
            self.is_refused = True  # a replay gives no attributes to tensors
        outside = {memory_of(source.tensor) for source in self._recorder.sources}
        for memory in _groups(memory for _, memory in self._selected):
            own = {node for node, found in self._selected if not memory.isdisjoint(found)}
            pairs = zip(nodes, tensors, strict=True)
            roots = {_root(node) for node, tensor in pairs if memory_of(tensor) in memory}
            if not roots & own:
                continue
            flag = self.outside.get(next(iter(roots)))
            is_outside = not memory.isdisjoint(outside) if flag is None else bool(flag)
            if len(roots) > 1 or is_outside:
                self.is_refused = True
            elif flag is not None:
                self._recorder.expect_choice(flag)


def _cost(func: Any, args: Any) -> int:
    """About how many numbers an operator reads, and multiplies."""
    sizes = [value.shape for value in pytree.tree_leaves(args) if isinstance(value, torch.Tensor)]
    count = sum(size.numel() for size in sizes)
    if func.overloadpacket in _PRODUCTS:
        count += sizes[-2].numel() * sizes[-1][-1]
    return count


def _groups(memories: Iterable[set[int]]) -> list[set[int]]:
    """Sets that have something in common, together."""
    found: list[set[int]] = []
    for memory in memories:
        joined = memory.union(*(each for each in found if not each.isdisjoint(memory)))
        found = [*(each for each in found if each.isdisjoint(memory)), joined]
    return found


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """What a node is a view of."""
    while isinstance(node.target, torch._ops.OpOverload) and node.target.is_view:
        node = node.all_input_nodes[0]
    return node


class _Selected:
    """What variables become by a decision.

    Attributes:
        tensors: of each that is a tensor, what it is in the graph, and the memory that it may have.
    """

    def __init__(
        self, recorder: Recorder, choice: Choice, decision: torch.Tensor, answer: bool
    ) -> None:
        self._recorder = recorder
        self._choice = choice
        self._decision = decision
        self._answer = answer
        self.tensors: list[tuple[torch.fx.Node, set[int]]] = []
        self._made: dict[tuple[int, int], torch.Tensor] = {}

    def variable(self, name: str, taken: Any, other: Any) -> Any:
        """Return what a variable becomes, which is `taken` now; raises _CannotChooseError.

        `name`: empty for an item of a tuple in a variable.
        """
        if taken is other:
            return taken
        if is_one_of(type(taken), IMMUTABLE_TYPES) and same_constant(taken, other):
            return taken
        if _is_number(taken) and _is_number(other):
            return self._number(name, taken, other)
        if type(taken) is type(other) is tuple and len(taken) == len(other):
            return tuple(map(functools.partial(self.variable, ""), taken, other))
        pair = id(taken), id(other)
        if pair not in self._made:
            if not (is_one_of(type(taken), TENSORS) and is_one_of(type(other), TENSORS)):
                raise _CannotChooseError
            self._made[pair] = self._tensor(taken, other)
        return self._made[pair]

    def _tensor(self, taken: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if type(taken) is not torch.Tensor or type(other) is not torch.Tensor:
            raise _CannotChooseError
        if _kind_of(taken) != _kind_of(other) or taken.requires_grad or other.requires_grad:
            raise _CannotChooseError
        if taken.is_inference() or other.is_inference() or not taken.is_cpu:
            raise _CannotChooseError
        made = self._where(taken, other)
        node = self._recorder.node_of(made)
        if node is None or made.stride() != taken.stride():
            raise _CannotChooseError
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            again = taken.detach()
            memory = {memory_of(taken), memory_of(other)}
            self._recorder.note_as(again, node)
        originals = self._recorder.choosing.originals
        originals[id(again)] = originals.get(id(taken), taken)
        self._recorder.choosing.aliases.append(again)
        flags = [self._is_outside(each) for each in (taken, other)]
        if any(flag is not None for flag in flags):
            never = torch.full((), False, dtype=torch.bool, device="cpu")
            pair = (never if flag is None else flag for flag in flags)
            self._recorder.choosing.outside[node] = self._where(*pair)
        self.tensors.append((node, memory))
        return again

    def _is_outside(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Whether a tensor was there before the call, by a bool; None where it was not."""
        node = self._recorder.node_of(tensor)
        assert node is not None
        root = _root(node)
        if root.op == "placeholder":
            return torch.full((), True, dtype=torch.bool, device="cpu")
        return self._recorder.choosing.outside.get(root)

    def _where(self, taken: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        pair = (taken, other) if self._answer else (other, taken)
        with torch.no_grad():
            return torch.where(self._decision, *pair)

    def _number(self, name: str, taken: Any, other: Any) -> ReadNumber:
        """Return what stands for a number, where the function keeps that to itself."""
        numbers = [taken, other]
        if not any(isinstance(each, ReadNumber) for each in numbers):
            self._check_kept(name)
        kinds = {_kind_of_number(each) for each in numbers}
        if len(kinds) > 1:
            raise _CannotChooseError
        is_int = kinds == {int}
        if is_int and not all(map(_is_small, numbers)):
            raise _CannotChooseError
        found = [self._tensor_of(each) for each in numbers]
        self._recorder.has_numbers = True
        return ReadNumber(self._where(*found), self._recorder, is_small=is_int)

    def _tensor_of(self, number: Any) -> torch.Tensor:
        if isinstance(number, ReadNumber):
            return number.tensor
        dtype = torch.float64 if type(number) is float else torch.int64
        return torch.full((), number, dtype=dtype, device="cpu")

    def _check_kept(self, name: str) -> None:
        """Refuse a variable whose number others may see; raises _CannotChooseError."""
        frame = sys._getframe()
        while not is_of_choice(frame.f_code) and is_own(frame.f_code.co_filename):
            assert frame.f_back is not None
            frame = frame.f_back
        uses = uses_of_variable(self._choice.code, name) if name else None
        if uses is None or not are_kept(uses, frame, self._recorder):
            raise _CannotChooseError


def _kind_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.device, tensor.layout, tensor.shape, tensor.stride()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) or isinstance(value, ReadNumber)


def _kind_of_number(value: Any) -> type:
    if isinstance(value, ReadNumber):
        return float if value.tensor.is_floating_point() else int
    return type(value)


def _is_small(value: Any) -> bool:
    return value.is_small if isinstance(value, ReadNumber) else abs(value) <= LARGEST_SMALL_INT


def _may_ask(chain: Chain, local: Mapping[str, Any], body: types.FunctionType) -> bool:
    """Whether code does nothing but compute with what it asks for."""
    if chain.is_global:
        if chain.name not in body.__globals__:
            is_pythons = hasattr(builtins, chain.name) and not chain.attributes
            return is_pythons and chain.name in _FUNCTIONS
        value = body.__globals__[chain.name]
    elif chain.name in local:
        value = local[chain.name]
    else:
        return True  # the statement makes it, of what is plain
    for name in chain.attributes:
        if _are_plain(value):
            return is_of_tensors(name)
        try:
            value = vars(value)[name] if _is_module(value) else _attribute(value, name)
        except (AttributeError, KeyError):
            return False
    return _are_plain(value) or _is_operator(value)


def _is_module(value: Any) -> bool:
    return any(value is module for module in _MODULES)


def _attribute(value: Any, name: str) -> Any:
    """What an object has by a name, where no code runs to find it; raises AttributeError."""
    kind: Any = type(value)
    if kind.__getattribute__ is not object.__getattribute__:
        raise AttributeError(name)
    bases = (vars(base) for base in kind.__mro__)
    of_class = next((as_defined(base[name]) for base in bases if name in base), None)
    if hasattr(type(of_class), "__get__"):
        raise AttributeError(name)
    own = instance_dict(value) or {}
    if name not in own and not any(name in base for base in map(vars, kind.__mro__)):
        raise AttributeError(name)  # which a method of the class may make
    return own.get(name, of_class)


def _is_operator(value: Any) -> bool:
    """Whether something is a function of PyTorch's that computes, and no more."""
    if not isinstance(value, (types.BuiltinFunctionType, types.FunctionType)):
        return False
    name = value.__name__
    return is_of_tensors(name) and any(vars(each).get(name) is value for each in _MODULES)


def _are_plain(value: Any, most: int = _MOST_ITEMS) -> bool:
    """Whether something is a tensor or a number, or a container of such."""
    if is_one_of(type(value), (tuple, list)):
        return len(value) <= most and all(_are_plain(item, most // 8) for item in value)
    return is_one_of(type(value), (*TENSORS, *_PLAIN))
