# SPDX-License-Identifier: Apache-2.0
"""Higher-order operators: those that control the flow keep functional graphs of their regions.

`cond`, `while_loop`, `map` and `scan` become one node each, with the regions traced like the whole
program, as attributes that are graphs. Those that only group operators (checkpoints, regions that
are compiled once) are traced as if they were not there.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import (
    get_proxy_mode,
    track_tensor_tree,
)
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.capturing.control_flow.batched_cond import batched_cond, is_batched
from hostjit.capturing.control_flow.batched_scan import batched_scan
from hostjit.capturing.control_flow.node_operators import CONTROL_OPERATORS
from hostjit.capturing.control_flow.region_writes import check_apart, writing_clones
from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.functional.number_inputs import with_numbers
from hostjit.capturing.open_sizes import all_equal

__all__ = ["Region", "trace_higher_order"]

_operators = torch.ops.higher_order

# Operators that call the graph which is their first argument with the arguments at this position
# and after.
_INLINED: dict[str, int] = {"tag_activation_checkpoint": 1, "invoke_subgraph": 2}


@dataclasses.dataclass
class Region:
    """The functional graph of one region.

    Attributes:
        graph_module: placeholders for the operands, then for `constants`; a flat tuple of results.
        constants: tensors that the region itself made.
        mutated: positions of the operands that it writes; those of `cond` alone may be written.
    """

    graph_module: torch.fx.GraphModule
    constants: list[torch.Tensor]
    mutated: tuple[int, ...] = ()


_NUMBERS = (bool, int, float)

# What a region is given: fake tensors, and numbers that are only known at the call.
Operands = list[Any]

TraceRegion = Callable[[torch.fx.GraphModule, Operands], Region]


def trace_higher_order(
    target: HigherOrderOperator,
    args: Sequence[Any],
    trace_region: TraceRegion,
    inline: Callable[[torch.fx.GraphModule, Sequence[Any]], Any],
    fake_mode: Any,
) -> Any:
    """Record one call of a higher-order operator, and return its results as functional tensors.

    Args:
        target: the operator.
        args: functional tensors, in lists as the operator takes them, and the graphs of regions.
        trace_region: makes the functional graph of a region from examples of its operands.
        inline: runs a region as a part of the program.
        fake_mode: in which the results are made.

    Raises CaptureError when the operator, or what it is called with, is not supported.
    """
    if target.name() in _INLINED:
        return inline(args[0], args[_INLINED[target.name()] :])
    if target not in CONTROL_OPERATORS:
        raise _unsupported(f"the program contains the higher-order operator {target.name()}")
    if target is _operators.cond:
        if isinstance(args[0], (bool, torch.SymBool)):
            return inline(args[1] if args[0] else args[2], args[3])
        if is_batched((args[0], *args[3])):
            return batched_cond(
                *args,
                inline=inline,
                record=lambda *lower: trace_higher_order(
                    target, lower, trace_region, inline, fake_mode
                ),
            )
    if target is _operators.scan and is_batched([*args[1], *args[2], *args[3]]):
        return batched_scan(
            *args,
            inline=inline,
            record=lambda *lower: trace_higher_order(
                target, lower, trace_region, inline, fake_mode
            ),
        )
    call = _Call(target, args, fake_mode)
    regions = call.regions(trace_region)
    if target is _operators.scan and _is_empty(args[2][0]):
        return [*args[1], *(_no_rows(like) for like in _results(regions[0])[len(args[1]) :])]
    written = sorted({position for region in regions for position in region.mutated})
    if not written:
        return call.record(regions)
    if target is not _operators.cond:
        raise _unsupported(
            "a region of a higher-order operator changes what it is given",
            hint="change a clone, and return it",
        )
    operands = [item for item in args[-1] if not isinstance(item, _NUMBERS)]
    check_apart(operands, written)
    call.modules = [writing_clones(module, written) for module in call.modules]
    results = call.record(call.regions(trace_region))
    for position, written_now in zip(written, results[len(results) - len(written) :], strict=True):
        operands[position].copy_(written_now)
    return results[: len(results) - len(written)]


class _Call:
    """The parts of a call: graphs, and lists of operands of which the last grows by constants."""

    def __init__(self, target: HigherOrderOperator, args: Sequence[Any], fake_mode: Any) -> None:
        self.target = target
        self.fake_mode = fake_mode
        self.modules = [arg for arg in args if isinstance(arg, torch.fx.GraphModule)]
        # The predicate of cond stands before the graphs, as a tensor.
        self.before = [] if isinstance(args[0], torch.nn.Module) else [_plain(args[0])]
        rest = args[len(self.before) + len(self.modules) :]
        # What regions only read may be numbers, such as sizes: known ones are their constants.
        unknown = [item for item in rest[-1] if not isinstance(item, _NUMBERS)]
        if len(unknown) < len(rest[-1]):
            given = [item for items in rest for item in items]
            self.modules = [with_numbers(module, given) for module in self.modules]
            rest = [*rest[:-1], unknown]
        self.lists: list[Operands] = [
            *([_plain(item) for item in items] for items in rest[:-1]),
            [item if is_number(item) else _plain(item) for item in rest[-1]],
        ]

    def regions(self, trace_region: TraceRegion) -> list[Region]:
        """Trace the graphs; each takes the constants of all."""
        regions = [
            trace_region(module, [self._like(operand) for operand in operands])
            for module, operands in zip(self.modules, self.region_operands(), strict=True)
        ]
        _share_constants(regions)
        return regions

    def region_operands(self) -> list[Operands]:
        """What each region takes: for map and scan, a slice of what is walked."""
        lists = list(self.lists)
        walked = {_operators.map_impl: 0, _operators.scan: 1}.get(self.target)
        if walked is not None:
            with _without_modes(self.fake_mode):
                lists[walked] = [_row(tensor) for tensor in lists[walked]]
        operands = [operand for items in lists for operand in items]
        return [operands] * len(self.modules)

    def results(self, regions: Sequence[Region]) -> list[torch.Tensor]:
        """Fake tensors like the results."""
        shapes = [_results(region) for region in regions]
        if self.target is _operators.cond:
            _check_alike(shapes[0], shapes[1], "the branches of cond")
            return [self._like(tensor) for tensor in shapes[0]]
        if self.target is _operators.while_loop:
            _check_alike(shapes[1], self.lists[0], "the body of while_loop and what it is given")
            return [self._like(tensor) for tensor in shapes[1]]
        carried = len(self.lists[0]) if self.target is _operators.scan else 0
        if carried:
            _check_alike(shapes[0][:carried], self.lists[0], "scan's carry and what it starts with")
        length = self.lists[1 if self.target is _operators.scan else 0][0].shape[0]
        return [
            *(self._like(tensor) for tensor in shapes[0][:carried]),
            *(self._stacked(tensor, length) for tensor in shapes[0][carried:]),
        ]

    def record(self, regions: Sequence[Region]) -> list[Any]:
        results = self.results(regions)
        mode = get_proxy_mode()
        assert mode is not None
        tracer: Any = mode.tracer
        graphs = [_attribute(tracer, "region", region.graph_module) for region in regions]
        constants = [
            _attribute(tracer, "region_constant", tensor)
            for region in regions
            for tensor in region.constants
        ]
        before, *lists = (
            tuple(tracer.unwrap_proxy(operand) for operand in items)
            for items in (self.before, *self.lists)
        )
        lists[-1] = (*lists[-1], *constants)
        proxy = tracer.create_proxy("call_function", self.target, (*before, *graphs, *lists), {})
        track_tensor_tree(results, proxy, constant=None, tracer=tracer)
        return [_functional(result) for result in results]

    def _like(self, operand: Any) -> Any:
        return operand if is_number(operand) else _like(operand, self.fake_mode)

    def _stacked(self, tensor: torch.Tensor, length: int | torch.SymInt) -> torch.Tensor:
        with _without_modes(self.fake_mode):
            return torch.empty((length, *tensor.shape), dtype=tensor.dtype, device=tensor.device)


def _attribute(tracer: Any, name: str, value: Any) -> Any:
    """Make `value` an attribute of the graph under construction."""
    number = sum(key.startswith(name) for key in vars(tracer.root)) + sum(
        key.startswith(name) for key in tracer.root._modules
    )
    target = f"{name}_{number}"
    setattr(tracer.root, target, value)
    proxy = tracer.create_proxy("get_attr", target, (), {})
    if isinstance(value, torch.fx.GraphModule):
        proxy.node.meta["region"] = value
    return proxy


def _share_constants(regions: Sequence[Region]) -> None:
    """Give each region placeholders for the constants of all: they become operands of each."""
    for number, region in enumerate(regions):
        graph = region.graph_module.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        own = len(region.constants)
        first_own = placeholders[len(placeholders) - own] if own else None
        _add_placeholders(graph, regions[:number], before=first_own)
        _add_placeholders(graph, regions[number + 1 :], before=None)
        region.graph_module.recompile()


def _add_placeholders(
    graph: torch.fx.Graph, regions: Sequence[Region], before: torch.fx.Node | None
) -> None:
    """Add placeholders nobody uses, in front of `before`, or behind all others."""
    for region in regions:
        nodes = [node for node in region.graph_module.graph.nodes if node.op == "placeholder"]
        for original in nodes[len(nodes) - len(region.constants) :] if region.constants else []:
            others = [node for node in graph.nodes if node.op != "placeholder"]
            with graph.inserting_before(before or others[0]):
                graph.placeholder("unused").meta.update(original.meta)


def _row(tensor: torch.Tensor) -> torch.Tensor:
    """The first row of a fake tensor; what one would be, if it has none."""
    return tensor.new_empty(tensor.shape[1:]) if _is_empty(tensor) else tensor[0]


def _is_empty(tensor: torch.Tensor) -> bool:
    """Whether a tensor has no rows: scan takes none from torch 2.15 on."""
    return statically_known_true(tensor.shape[0] == 0)


def _no_rows(like: torch.Tensor) -> torch.Tensor:
    return torch.empty((0, *like.shape), dtype=like.dtype, device=like.device)


def _results(region: Region) -> list[torch.Tensor]:
    """The fake results; raises CaptureError for what is no tensor."""
    nodes: Any = region.graph_module.graph.output_node().args[0]
    if not all(isinstance(node, torch.fx.Node) for node in nodes):
        raise _unsupported("a region of a higher-order operator gives something that is no tensor")
    return [node.meta["val"] for node in nodes]


def _check_alike(
    found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], where: str
) -> None:
    if len(found) == len(expected) and all(
        a.dtype == b.dtype
        and a.device == b.device
        and all_equal(a.shape, b.shape)
        and all_equal(a.stride(), b.stride())
        for a, b in zip(found, expected, strict=True)
    ):
        return
    raise _unsupported(f"{where} have different dtypes, sizes or strides")


def _plain(value: Any) -> torch.Tensor:
    """The fake tensor behind a functional one."""
    if not isinstance(value, FunctionalTensor):
        raise _unsupported(f"a higher-order operator is given a {type(value).__qualname__}")
    torch._sync(value)
    plain: torch.Tensor = torch._from_functional_tensor(value.elem)
    return plain


def _functional(plain: torch.Tensor) -> FunctionalTensor:
    mode: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL)
    with _disable_current_modes(), mode:
        return FunctionalTensor.to_functional(plain)


def _like(tensor: torch.Tensor, fake_mode: Any) -> torch.Tensor:
    """A new fake tensor of the same dtype, sizes and strides."""
    with _without_modes(fake_mode):
        return torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )


@contextlib.contextmanager
def _without_modes(fake_mode: Any) -> Iterator[None]:
    with _disable_current_modes(), fake_mode:
        yield


def _unsupported(what: str, hint: str = "run this function eagerly") -> CaptureError:
    return CaptureError(CaptureFailure.UNSUPPORTED_PROGRAM, what, hint=hint)
