# SPDX-License-Identifier: Apache-2.0
"""Numbers that code reads from tensors: `t.item()`, `int(mask.sum())`, `x[t]` where it is a view.

Dynamo stops there. Where such a number follows from tensors of the arguments by cheap operators, it
is an open number of the call instead: a function of the tensors makes it ahead of the program.
"""

from __future__ import annotations

import contextlib
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.dynamo.method_handlers import replaced_handler
from hostjit.capturing.functional.graph_writes import written_nodes
from hostjit.capturing.graph_module import running
from hostjit.capturing.numbers.python_functions import MadeOf, new_number
from hostjit.capturing.overlap import may_write
from hostjit.capturing.traced_graph import storage_of
from hostjit.replacements import replaced_attribute

__all__ = ["ItemRead", "ItemReads", "check_kept_open", "reading_items"]

# Operators that cost little, draw nothing and write nothing: views, and one pass over memory.
_CHEAP = frozenset(
    {
        *("sum", "prod", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all"),
        *("count_nonzero", "cumsum", "diff", "norm", "gt", "ge", "lt", "le", "eq", "ne"),
        *("logical_and", "logical_or", "logical_not", "logical_xor", "and_", "or_", "xor", "not_"),
        *("invert", "bitwise_and", "bitwise_or", "bitwise_not", "isnan", "isfinite", "isinf"),
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "abs", "div", "remainder"),
        *("clamp", "clip", "floor", "ceil", "round", "trunc", "minimum", "maximum", "where"),
        *("to", "long", "int", "float", "double", "bool", "detach", "getitem", "select"),
        *("view", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "t", "transpose"),
        *("permute", "expand", "contiguous", "narrow"),
    }
)
_KNOWN = (int, float, bool, str, type(None), type(Ellipsis), torch.dtype, torch.device)
_MOST_KNOWN = 2
# What these hold for the operators behind them, no function of tensors can repeat.
_CHANGES_MODES = ("_enter_autocast", "set_default_dtype", "set_autocast_enabled")


class ItemReads:
    """What one callable reads of tensors.

    Attributes:
        refused: such numbers are not left open any more.
        found: the last capture left some open.
        known: values that programs were made for, alone.
        compiled: compiles the function that makes the tensor of a number; by default leaves it.
    """

    def __init__(self) -> None:
        self.refused = False
        self.found = False
        self.known: set[Any] = set()
        self.compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = _as_it_is

    @property
    def are_open(self) -> bool:
        """Whether programs were made that have such numbers open."""
        return self.found and not self.refused

    def refuse(self) -> Callable[[], None]:
        """Leave such numbers open no more; returns what undoes that."""
        self.refused = True
        return lambda: setattr(self, "refused", False)


class ItemRead:
    """How a number is read from tensors of the arguments.

    In graphs of Dynamo's it is a function of the tensor that has the number.

    Attributes:
        leaves: which tensor leaves of the arguments it takes.
        compute: makes of them the tensor that has the number; None for the one leaf itself.
    """

    __name__ = "item"

    def __init__(self, leaves: Sequence[int], compute: Callable[..., Any] | None) -> None:
        self.leaves = tuple(leaves)
        self.compute = compute

    def __call__(self, tensor: torch.Tensor) -> Any:
        return tensor.item()


@contextlib.contextmanager
def reading_items(
    leaves: Sequence[torch.Tensor],
    made: dict[Any, MadeOf],
    reads: ItemReads | None,
    *,
    of_places: bool = False,
) -> Iterator[None]:
    """Have Dynamo leave such numbers open, in this thread.

    Args:
        leaves: the tensor leaves of the arguments.
        made: takes how they are made, by their symbols.
        reads: is told whether there are any; None leaves Dynamo as it is.
        of_places: int tensors without dims are read where they are indices, too.
    """
    if reads is None:
        yield
        return
    reads.found = False
    owner = threading.get_ident()

    def number_of(tensor: Any, tx: Any) -> Any:
        found = _read(tensor.as_proxy(), tx.output, leaves, reads)
        if found is None:
            return None
        read, now = found
        reads.found = True
        number = new_number(tx.output.shape_env, now, f"item_{len(made)}")
        made[number.node.expr] = MadeOf(read, (), number)
        proxy = tx.output.create_proxy("call_function", read, (tensor.as_proxy(),), {})
        return SymNodeVariable.create(tx, proxy, number)

    def reading(follow: Callable[..., Any]) -> Callable[..., Any]:
        def item(self: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == owner and not args and not kwargs:
                number = number_of(self, tx)
                if number is not None:
                    return number
            return follow(self, tx, *args, **kwargs)

        return item

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced_handler(TensorVariable, "item", reading))
        if of_places:
            stack.enter_context(_places_as_numbers(owner, number_of))
        yield


@contextlib.contextmanager
def _places_as_numbers(owner: int, number_of: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Have Dynamo index by the numbers in place of tensors that have them."""
    call_builtin = BuiltinVariable.call_function

    def place(item: Any, tx: Any) -> Any:
        item = item.realize()
        if isinstance(item, TupleVariable):
            return TupleVariable([place(each, tx) for each in item.items])
        if not isinstance(item, TensorVariable) or not _is_place(item.as_proxy().node):
            return item
        number = number_of(item, tx)
        return item if number is None else number

    def builtin(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        if self.fn is operator.getitem and threading.get_ident() == owner:
            base, key = (argument.realize() for argument in args)
            args = [base, place(key, tx) if isinstance(base, TensorVariable) else key]
        return call_builtin(self, tx, args, kwargs)

    def indexing(follow: Callable[..., Any]) -> Callable[..., Any]:
        def index(self: Any, tx: Any, key: Any, *value: Any) -> Any:
            if threading.get_ident() == owner:
                key = place(key, tx)
            return follow(self, tx, key, *value)

        return index

    with (
        replaced_attribute(BuiltinVariable, "call_function", builtin),
        replaced_handler(TensorVariable, "__getitem__", indexing),
        replaced_handler(TensorVariable, "__setitem__", indexing),
    ):
        yield


def _is_place(node: Node) -> bool:
    value = _value(node)
    is_tensor = isinstance(value, torch.Tensor) and value.dim() == 0
    return is_tensor and value.dtype in (torch.int64, torch.int32, torch.int16, torch.int8)


def check_kept_open(environment: Any, made: Mapping[Any, MadeOf], reads: ItemReads | None) -> None:
    """Raise CaptureError where the code needs to know such numbers, as a loop over one does.

    A few values may have programs of their own: sizes of 0 and 1 do.
    """
    if reads is None:
        return
    for symbol, made_of in made.items():
        known = environment.replace(symbol)
        if isinstance(made_of.function, ItemRead) and known.is_number:
            reads.known.add(known)
    if len(reads.known - {0, 1}) > _MOST_KNOWN:
        raise refusal("the code needs to know a number that it reads from a tensor")


def _read(
    proxy: Any, output: Any, leaves: Sequence[torch.Tensor], reads: ItemReads
) -> tuple[ItemRead, float] | None:
    """Return how a number is read, and what it is in this call; None where it can't be."""
    value = proxy.node.meta.get("example_value")
    if output.current_tracer.parent is not None or not _has_number(value):
        return None
    nodes = _ancestors(proxy.node)
    positions = {id(leaf): index for index, leaf in reversed([*enumerate(leaves)])}
    inputs = {node: _argument(node) for node in nodes if node.op == "placeholder"}
    if not inputs or any(id(tensor) not in positions for tensor in inputs.values()):
        return None
    computed = [node for node in nodes if node not in inputs]
    if not all(map(_is_cheap, computed)) or not _is_untouched(output.graph, {*nodes}):
        return None
    module = _module(nodes) if computed else None
    with _disable_current_modes(), torch.no_grad():
        found = [*inputs.values()]
        now = (found[0] if module is None else running(module)(*found)).item()
    if type(now) not in (int, float) or not math.isfinite(now):
        return None
    compute = None if module is None else reads.compiled(_without_gradients(module))
    return ItemRead([positions[id(tensor)] for tensor in found], compute), now


def _has_number(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return value.dtype is not torch.bool and not value.dtype.is_complex


def _argument(placeholder: Node) -> Any:
    """Return the tensor of the call that an input is, None for others."""
    argument = placeholder.meta.get("grapharg")
    if argument is None or not argument.is_tensor or argument.pass_arg_as_tensor:
        return None
    tensor = argument.example
    return tensor if type(tensor) in (torch.Tensor, torch.nn.Parameter) else None


def _ancestors(node: Node) -> list[Node]:
    """Return a node and what it is made of, in the order of the graph."""
    found = {node}
    waiting = [node]
    while waiting:
        new = set(waiting.pop().all_input_nodes) - found
        found |= new
        waiting += new
    return [node for node in node.graph.nodes if node in found]


def _is_cheap(node: Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name.removeprefix("__").removesuffix("__") not in _CHEAP or may_write(node):
        return False
    if not all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(_value(node))):
        return False
    operands: list[Any] = []
    torch.fx.node.map_aggregate((node.args, node.kwargs), operands.append)
    return all(isinstance(operand, (Node, *_KNOWN)) for operand in operands if not _holds(operand))


def _holds(operand: Any) -> bool:
    """Whether something is made of others that are looked at, too."""
    return isinstance(operand, (tuple, list, dict, slice))


def _is_untouched(graph: Graph, nodes: set[Node]) -> bool:
    """Whether a graph has so far written no memory of these nodes.

    Calls that write memory which they reach in two ways run eagerly. Neither may the graph compute
    otherwise than around it.
    """
    memory = {storage_of(leaf) for node in nodes for leaf in tree_leaves(_value(node))}
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") in _CHANGES_MODES:
            return False
        if may_write(node):
            written = {storage_of(leaf) for w in written_nodes(node) for leaf in _leaves(w)}
            if not written or written & memory:
                return False
    return True


def _leaves(node: Node) -> list[Any]:
    return tree_leaves(_value(node))


def _value(node: Node) -> Any:
    return node.meta.get("example_value")


def _module(nodes: Sequence[Node]) -> GraphModule:
    """Return what computes the last of these nodes; it takes those that are inputs."""
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in sorted(nodes, key=lambda node: node.op != "placeholder"):
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta = {}
    graph.output(copies[nodes[-1]])
    return GraphModule(torch.nn.Module(), graph)


def _without_gradients(module: GraphModule) -> Callable[..., Any]:
    run = running(module)

    def read_number(*tensors: torch.Tensor) -> Any:
        with torch.no_grad():
            return run(*tensors)

    return read_number


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function
