# SPDX-License-Identifier: Apache-2.0
"""Records the operators that run as a graph, while they run.

A dispatch mode sees what reaches the dispatcher below autograd: operators of backward passes too. A
function mode sees what reads data of tensors past the dispatcher.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.functional.composite_autocast import CompositeAutocast
from hostjit.capturing.functional.recorded_nodes import Made
from hostjit.capturing.overlap import refuse_overlapping_operands
from hostjit.recording.code.handlers import handler_around, may_raise
from hostjit.recording.code.libraries import user_line
from hostjit.recording.code.seen_code import Unseen
from hostjit.recording.graph.choosing import Choosing
from hostjit.recording.graph.constant_reads import varying_nodes
from hostjit.recording.graph.inputs import Constant, Leaf, OpenArgument, Source
from hostjit.recording.graph.leaving import Leaving
from hostjit.recording.graph.places import Place
from hostjit.recording.graph.recorded_graph import RecordedGraph
from hostjit.recording.graph.sizes import has_unknown_sizes, record_sized
from hostjit.recording.reach.state import State
from hostjit.recording.running.eager_loops import run_loop
from hostjit.recording.running.generator_draws import (
    DRAW,
    SEED,
    Draw,
    UsedGenerator,
    address_of,
    draws_from,
    signed,
)
from hostjit.recording.running.gradient_hooks import AddedHook
from hostjit.recording.running.recurrent_networks import is_whole_network

__all__ = ["Read", "Recorder"]

aten = torch.ops.aten

_SCALAR_READ = "aten._local_scalar_dense.default"
# What these return is the same where sizes are, which are compared. Forward derivatives ask.
_OF_SIZES = frozenset({aten.is_same_size.default, aten._has_same_storage_numel.default})
_PASSED = (
    *(bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout),
    torch.memory_format,
)
_MOST_VALUES = 4096
# Where passes of a loop may be compiled instead.
_MOST_BACKWARD = 32


class Read:
    """A read of data.

    Attributes:
        node: what was read, a copy made there.
        expected: the values.
        where: the line that reads them.
        is_size: they are the size of a result of an operator.
        is_of_choice: a statement that chooses reads them, to lead elsewhere, or one by which a loop
            with backward passes is left: other ways are known otherwise.
    """

    def __init__(
        self,
        node: torch.fx.Node,
        expected: torch.Tensor,
        where: str,
        *,
        is_size: bool,
        is_of_choice: bool,
    ) -> None:
        self.node = node
        self.expected = expected
        self.where = where
        self.is_size = is_size
        self.is_of_choice = is_of_choice


class Recorder(RecordedGraph, TorchDispatchMode):
    """The graph of what runs while this mode is entered.

    Attributes:
        reads: reads of data, in order.
        autocast: where operators are called.
        ran_backward: some operator belongs to a backward pass.
        asked: ids of the tensors whose `.grad` was asked for.
        handled: the first operator that may raise where the code would handle it; "" if none.
        draws: what was drawn from generators that operators were given.
        used: those generators, and others that were seeded, by address.
        caller: the frame that calls what is recorded.
        control: the first operator that chooses what runs (cond, while_loop); "" if none.
        has_hooks: the code has added hooks to the graph of the call.
        has_numbers: the code has something that stands for a number.
        places: views that the code has selected by a number, by their nodes.
        choosing: statements of the code that choose by values.
        leaving: loops of the code that others may leave earlier.
        most: so many nodes are recorded, and few backward passes: more are not worth what it takes.
        is_over: more ran.
        takes_number: tells whether what stands for a number may be put into an attribute.
    """

    supports_higher_order_operators = True

    def __init__(self, leaves: Sequence[torch.Tensor], state: State, on_read: str) -> None:
        TorchDispatchMode.__init__(self)
        RecordedGraph.__init__(self, leaves, state)
        self.reads: list[Read] = []
        self.autocast = CompositeAutocast()
        self.ran_backward = False
        self.on_read = on_read
        self._settings = _settings_of_operators()
        self.asked: set[int] = set()
        self.handled = ""
        self.draws: list[Draw] = []
        self.used: dict[int, UsedGenerator] = {}
        self.caller: types.FrameType | None = None
        self.control = ""
        self.has_hooks = False
        self.has_numbers = False
        self.places: list[Place] = []
        self.choosing = Choosing(self)
        self.leaving = Leaving(self)
        self.most = math.inf
        self.is_over = False
        self.takes_number: Callable[[Any, str], bool] = lambda owner, name: False
        self._backward, self._num_backward = -1, 0
        self._added_hooks: list[AddedHook] = []
        self._first_of_graph = torch.autograd._get_sequence_nr()

    def read(self, tensor: torch.Tensor, what: str) -> None:
        """Note that Python code has seen the values of a tensor."""
        self.choosing.note_more()
        self._read(tensor, what)

    def _read(self, tensor: torch.Tensor, what: str) -> None:
        self._raise_if_asked(what, "keep it in a tensor, or record with on_read='guard'")
        if tensor.numel() == 0:
            return  # its size says it
        node = self.node_of(tensor)
        if node is None or tensor.numel() > _MOST_VALUES:
            self.refuse(f"{what} reads data that no guard can be about")
            return
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            expected = tensor.detach().clone()
        self._expect(node, expected, is_size=False)

    def read_size(self, count: torch.fx.Node, size: int, what: str) -> None:
        """Note that the size of a result of `what` depends on values: it is that of a node."""
        self._raise_if_asked(what, "record with on_read='guard'")
        self._expect(count, torch.tensor(size, device="cpu"), is_size=True)

    def _expect(self, node: torch.fx.Node, expected: torch.Tensor, *, is_size: bool) -> None:
        copy = self.call(aten.clone.default, (node,), {})
        if (made := Made.of(expected)) is not None:
            self.made[copy] = made
        where = user_line(sys._getframe(1))
        is_of_choice = bool(self.choosing.ways)
        read = Read(copy, expected, where, is_size=is_size, is_of_choice=is_of_choice)
        self.reads.append(read)

    def _is_too_long(self) -> bool:
        """Whether more ran than is worth recording."""
        if self.most == math.inf:
            return False
        return len(self.graph.nodes) > self.most or self._num_backward > _MOST_BACKWARD

    def num_backward(self) -> int:
        """Return how many backward passes ran so far."""
        return self._num_backward

    def expect_choice(self, answer: torch.Tensor) -> None:
        """Have replays compare an answer by which a call has chosen, which has ended."""
        node = self.node_of(answer)
        assert node is not None
        self._expect(node, answer.clone(), is_size=False)
        self.reads[-1].is_of_choice = True

    def drop_constant_reads(self) -> None:
        """Forget the reads of what is the same at each call."""
        if self.reads:
            varying = varying_nodes(self.graph, self.sources, self.storages)
            constant = {whole for whole, alone in self.choosing.answered if alone not in varying}
            self.reads = [
                read
                for read in self.reads
                if read.node in varying and read.node.args[0] not in constant
            ]

    @property
    def reads_floats(self) -> bool:
        """Whether a float was read, or a tensor of floats."""
        return any(read.expected.is_floating_point() for read in self.reads)

    def reads_floats_of_arguments(self) -> bool:
        """Tell whether a float was read that is computed of arguments: others have another."""
        nodes = [read.node for read in self.reads if read.expected.is_floating_point()]
        return any(isinstance(source, Leaf) for source in self.sources_of(nodes))

    def reads_tensors(self) -> bool:
        """Tell whether anything was read but what is computed of open numbers alone."""
        sources = self.sources_of(read.node for read in self.reads)
        of_numbers = all(isinstance(source, (OpenArgument, Constant)) for source in sources)
        return bool(self.reads) and not (sources and of_numbers)

    def sources_of(self, nodes: Iterable[torch.fx.Node]) -> list[Source]:
        """Return the inputs that nodes are computed of."""
        pending, seen = [*nodes], set[torch.fx.Node]()
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending.extend(node.all_input_nodes)
        inputs = zip(self.graph.find_nodes(op="placeholder"), self.sources, strict=True)
        return [source for node, source in inputs if node in seen]

    def select(self, tensor: torch.Tensor, dim: int, number: torch.Tensor) -> torch.Tensor:
        """Return the view `tensor.select(dim, number)`, in the graph one for any number."""
        with torch.utils._python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
            place = int(number.item())
        view = tensor.select(dim, place)
        node, where = self.node_of(view), self.node_of(number)
        if node is None or where is None or node.target is not aten.select.int:
            self.refuse("it picks an item by a number in a way which cannot be recorded")
        else:
            self.places.append(Place(node, where, tensor.shape[dim]))
        return view

    def depends_on_open(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is made of numbers that calls may bring any of."""
        node = self.node_of(tensor)
        sources = [] if node is None else self.sources_of([node])
        return any(isinstance(source, OpenArgument) for source in sources)

    def note_hook(self, what: str, owner: Any) -> None:
        """Note that code calls a method that adds a hook to a tensor, or to a node of the graph.

        Those of what the call makes are gone with it; others have to be removed by its end.
        """
        self.has_hooks = True
        self.leaving.note_more()
        if isinstance(owner, torch.Tensor):
            is_old = self.is_outside(owner)
        else:  # what accumulates the gradient of a leaf has the largest number that there is
            is_old = not self._first_of_graph <= owner._sequence_nr() < 2**64 - 1
        problem = f"it calls {what}() of what was there before"
        if is_old and isinstance(owner, torch.Tensor) and what != "retain_grad":
            self._added_hooks.append(AddedHook(owner, f"{problem} ({user_line(sys._getframe(1))})"))
        elif is_old:
            self.refuse(problem)

    def hook_that_stays(self) -> str:
        """Return what it says that a hook stays on a tensor that was there before; "" if none."""
        return next((hook.problem for hook in self._added_hooks if hook.stays()), "")

    def reads_memory(self, what: str) -> None:
        """Note that Python code was given what no guard can compare."""
        self._raise_if_asked(what, "call it outside of the recorded function")
        self.refuse(f"it calls {what} of a tensor, which a replay cannot repeat")

    def _raise_if_asked(self, what: str, hint: str) -> None:
        if self.on_read == "raise":
            raise CaptureError(
                CaptureFailure.DATA_DEPENDENT,
                f"{what} reads data of a tensor while it is recorded",
                where=user_line(sys._getframe(1)) or None,
                hint=hint,
            )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            self.control = self.control or func.name()
            self.refuse(f"it calls {func.name()}, which runs what its operands say")
            if func is torch.ops.higher_order.while_loop:
                return run_loop(*args)
            return func(*args, **(kwargs or {}))
        if torch.is_inference_mode_enabled():
            # There, composite operators come as they are.
            result: Any = NotImplemented
            with self, self.autocast.inside(func):
                if not is_whole_network(func, args):
                    result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        with _lazy_views_resolved(), Unseen():
            return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator and record it."""
        if self.problem or func.namespace == "profiler" or _has_no_data(func, args, kwargs):
            return func(*args, **kwargs)
        if self._is_too_long():
            self.is_over = True
            self.refuse("it runs too many operators, or backward passes")
            return func(*args, **kwargs)
        if _settings_of_operators() != self._settings:
            self.refuse("it changes the default dtype or determinism for a part of it")
            return func(*args, **kwargs)
        task = torch._C._current_graph_task_id()
        if task != -1:
            self.ran_backward = True
            self._num_backward += task != self._backward
            self._backward = task
        if str(func) == _SCALAR_READ:
            is_chosen = self.choosing.is_conditional()
            self._read(self.choosing.as_answered(args[0]) if is_chosen else args[0], ".item()")
            return func(*args, **kwargs)
        is_check = func is aten._linalg_check_errors.default and args[0].is_cpu
        if is_check and self.choosing.is_conditional():
            args = (self.choosing.where_run(args[0]), *args[1:])
        else:
            if self.choosing.ways:
                self.choosing.note_operator(func, args, kwargs)
            self.leaving.note_operator(func, args, kwargs)
        if func is aten.equal.default:
            return self._equal(*args)
        if func is aten.lift_fresh.default and not self.knows(args[0]):
            return self._constant(func, args[0])
        if not self.handled and may_raise(func, args, kwargs):
            if handler_around(sys._getframe(1), self.caller):
                self.handled = f"{func} ({user_line()})"
        generator = draws_from(func, args, kwargs)
        if generator is not None:
            return self._draw(func, args, kwargs, generator)
        operands = self._operands(func, args, kwargs)
        if operands is not None and _fills_at_random(func) and not args[0].is_contiguous():
            operands = self._in_order_of_memory(func, args[0], *operands)
        try:
            result = func(*args, **kwargs)
        except Exception:
            # If the code handles it, what it does then depends on the data.
            self.refuse(f"{func} raises")
            raise
        if operands is not None:
            with torch._C.DisableTorchFunction():  # modes are on where C++ calls the operator
                self._note_call(func, args, kwargs, operands, result)
        return result

    def _note_call(
        self, func: Any, args: Any, kwargs: Any, operands: tuple[Any, Any], result: Any
    ) -> None:
        """Record what an operator did."""
        if func._schema.is_mutable:
            written = _written(func, args, kwargs)
            self.choosing.note_writes(written)
            self.leaving.note_writes(written)
        if func._schema.is_mutable and func.namespace == "aten":
            try:
                refuse_overlapping_operands(func, args, kwargs)
            except CaptureError as error:
                self.refuse(error.what)
        if has_unknown_sizes(func, args):
            found = record_sized(self, func, args, *operands, result)
            nodes = found if isinstance(found, tuple) else (found,)
            tensors = result if isinstance(found, tuple) else (result,)
            for tensor, node in zip(tensors, nodes, strict=True):
                self.note(tensor, node)
        else:
            self._record(func, *operands, result)

    def _draw(self, func: Any, args: Any, kwargs: Any, generator: torch.Generator) -> Any:
        """Run and record an operator that draws from a generator which it is given."""
        used = self._use(generator)
        if used.is_made and generator.device.type != "cpu":
            self.refuse(f"{func} draws from a generator that the call makes")
        elif not used.is_seeded():
            self.refuse(f"{func} draws from a generator whose state the call has made")
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.refuse(f"{func} raises")  # if the code handles it, that depends on the data
            raise
        if self.problem:
            return result
        if not isinstance(result, torch.Tensor) or "out" in kwargs:
            self.refuse(f"{func} draws from a generator in a way which cannot be recorded")
            return result
        draw = Draw(func, args, kwargs, used, result)
        operands = self._operands(
            func, [result, *draw.operands] if draw.fills else draw.operands, {}
        )
        if operands is None:
            return result
        self.draws.append(draw)
        given = list(operands[0])
        filled = given.pop(0) if draw.fills else None
        given = [self.call(aten.detach.default, (node,), {}) for node in given]
        node = self.call(DRAW, (given, draw.number), {})
        if filled is not None:
            node = self.call(aten.copy_.default, (filled, node), {})
        else:
            self.note(result, node)
        return result

    def _use(self, generator: torch.Generator) -> UsedGenerator:
        place = address_of(generator)
        if place not in self.used:
            is_made = place not in self._state.generators
            self.used[place] = UsedGenerator(generator, is_made)
        return self.used[place]

    def note_seed(self, generator: torch.Generator) -> None:
        """Note that code has seeded a generator other than the default one."""
        self.leaving.note_more()
        self._use(generator).note_seed()

    def generators_given(self) -> list[torch.Generator]:
        """Return the generators besides the default one that operators, or seeds, were given."""
        return [used.generator for used in self.used.values() if not used.is_made]

    def leave_seeds(self) -> None:
        """Record the seeds that others find in generators after the call, which has ended."""
        for used in self.used.values():
            seed = None if used.is_made else used.take_seed()
            if seed is not None:
                self.call(SEED, (used.number, signed(seed)), {})

    def _operands(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        def convert(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                node = self.node_of(value)
                if node is None:
                    self.refuse(
                        f"{func} takes a tensor that was made in a way which cannot be recorded"
                    )
                return node
            if not isinstance(value, _PASSED):
                kind = type(value).__qualname__
                self.refuse(f"{func} takes a {kind}, which cannot be recorded")
            return value

        leaves, spec = pytree.tree_flatten((args, kwargs))
        converted = [convert(leaf) for leaf in leaves]
        if self.problem:
            return None
        arguments = pytree.tree_unflatten(converted, spec)
        return arguments[0], arguments[1]

    def _in_order_of_memory(
        self, func: Any, tensor: torch.Tensor, args: Any, kwargs: Any
    ) -> tuple[Any, Any] | None:
        """Have a tensor filled with random numbers in the order in which eager fills it.

        What functionalisation makes of `bernoulli_` fills contiguous memory.
        """
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        is_dense = tensor.permute(order).is_contiguous()
        if not is_dense or func is aten.bernoulli_.Tensor:
            self.refuse(f"{func} fills a tensor with gaps, or with other strides, at random")
            return None
        if func is aten.bernoulli_.float:
            args = (self.call(aten.permute.default, (args[0], order), {}), *args[1:])
        return args, kwargs

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if func in _OF_SIZES or _is_constant(func, args, kwargs, result):
            return
        node = self.call(func, args, kwargs)
        if isinstance(result, torch.Tensor):
            self.note(result, node)
        elif isinstance(result, (tuple, list)):
            self._note_items(node, result)
        elif result is not None:
            self.refuse(f"{func} returns a {type(result).__qualname__}, which may differ")

    def _note_items(self, node: torch.fx.Node, items: Sequence[Any]) -> None:
        for index, item in enumerate(items):
            if isinstance(item, torch.Tensor):
                if not self.knows(item):
                    self.note(item, self.call(operator.getitem, (node, index), {}))
            elif isinstance(item, (tuple, list)):
                self._note_items(self.call(operator.getitem, (node, index), {}), item)
            elif item is not None:
                self.refuse(f"{node.target} returns a {type(item).__qualname__}, which may differ")

    def _constant(self, func: Any, tensor: torch.Tensor) -> torch.Tensor:
        """Record a tensor made of Python values: a copy of the same values at each call."""
        with torch.utils._python_dispatch._disable_current_modes():
            values = tensor.detach().clone()
        result: torch.Tensor = func(tensor)
        node = self.add_input(values, Constant(values))
        self.note(result, self.call(aten.clone.default, (node,), {}))
        return result

    def _equal(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        if left.shape != right.shape:
            return False
        with self:
            same = torch.ops.aten.all.default(aten.eq.Tensor(left, right))
        self.read(same, "torch.equal")
        with torch.utils._python_dispatch._disable_current_modes():
            return bool(same)


def _is_constant(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Tell whether an operator is given no tensor, and makes none but a value: promote_types."""
    if func.namespace != "aten" or result is None:
        return False
    operands, results = pytree.tree_leaves((args, kwargs)), pytree.tree_leaves(result)
    if any(isinstance(value, torch.fx.Node) for value in operands):
        return False
    return not any(isinstance(value, torch.Tensor) for value in results)


def _lazy_views_resolved() -> contextlib.AbstractContextManager[None]:
    """Have kernels see what is conjugated or negated lazily, as they do outside of modes.

    PyTorch leaves that out for what a mode calls, and `linalg.pinv` of complex numbers is wrong.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative):
        excluded = excluded.remove(key)
    included = torch._C._dispatch_tls_local_include_set()
    guard: contextlib.AbstractContextManager[None] = torch._C._ForceDispatchKeyGuard(
        included, excluded
    )
    return guard


def _has_no_data(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether an operator computes sizes alone, in tensors on the meta device.

    Products with the zeros of forward derivatives do, also of numbers, which no operator has made.
    """
    device = kwargs.get("device")
    if func is aten.to.dtype_layout and device is not None and device.type == "meta":
        return True
    return any(isinstance(value, torch.Tensor) and value.is_meta for value in args)


def _written(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an operator writes to."""
    schema = func._schema.arguments
    given = {argument.name: value for argument, value in zip(schema, args, strict=False)} | kwargs
    written = [
        given.get(argument.name)
        for argument in schema
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [each for each in pytree.tree_leaves(written) if isinstance(each, torch.Tensor)]


def _fills_at_random(func: Any) -> bool:
    return func._schema.is_mutable and torch.Tag.nondeterministic_seeded in func.tags


def _settings_of_operators() -> tuple[torch.dtype, bool]:
    """What operators do depends on these, and a replay has those that the call begins with."""
    return torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
