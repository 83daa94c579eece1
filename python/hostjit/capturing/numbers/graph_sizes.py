# SPDX-License-Identifier: Apache-2.0
"""The open sizes that a graph computes with, and where they are found among its inputs.

Most are sizes of tensors that it takes anyway. Others are told by a tensor that has nothing else:
see `size_tensor`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.experimental.symbolic_shapes import free_symbols
from torch.fx.node import map_aggregate, map_arg
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from hostjit.capturing.dynamic_dims import is_number, is_symbolic, refusal
from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.numbers.host_numbers import host_number
from hostjit.capturing.numbers.open_numbers import OpenValue
from hostjit.capturing.traced_graph import placeholder_values

__all__ = [
    "SIZE_DIM",
    "Place",
    "find_sizes",
    "follows_from",
    "is_open_number",
    "over_tensors",
    "own_sizes",
    "size_tensor",
    "told_symbols",
    "used_symbols",
    "with_sizes_in_place",
]

# A tensor, by its position among tensors, and a dim of it.
Place = tuple[int, int]

# The dim of a `size_tensor` that tells the size.
SIZE_DIM = 1


def size_tensor(size: int | torch.SymInt) -> torch.Tensor:
    """Return a tensor that has nothing but a size, that of dim `SIZE_DIM`.

    The first dim is 0, and PyTorch asks no further whether the tensor has elements.
    """
    return torch.empty_strided((0, size), (1, 1), dtype=torch.uint8, device="cpu")


def find_sizes(module: GraphModule, more: Sequence[torch.Tensor] = ()) -> dict[int, Place | None]:
    """Return for each number that a graph takes and uses where it is a size; None for nowhere.

    Looked for among the tensors that the graph takes, then among `more`.
    """
    values = placeholder_values(module)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    places: dict[str, Place] = {}
    for index, tensor in enumerate([*tensors, *more]):
        for dim, size in enumerate(tensor.shape):
            places.setdefault(str(size), (index, dim))
    numbers = {index: value for index, value in enumerate(values) if is_open_number(value)}
    inputs = module.graph.find_nodes(op="placeholder")
    return {n: places.get(str(value)) for n, value in numbers.items() if inputs[n].users}


def over_tensors(
    module: GraphModule,
    places: Mapping[int, Place],
    more: Sequence[torch.Tensor],
    numbers: Sequence[OpenValue] = (),
) -> GraphModule:
    """Return a graph that takes tensors only: numbers among its inputs are read off of their sizes.

    Args:
        module: a graph of Dynamo's or AOTAutograd's.
        places: for each number that it uses, the place among its tensors and then `more`; one that
            is not there is among `numbers`.
        more: fake tensors like those that the new graph takes after its own.
        numbers: what it takes after those, all the same.
    """
    graph = Graph()
    copies: dict[Node, Any] = {}
    inputs = module.graph.find_nodes(op="placeholder")
    values = dict(zip(inputs, placeholder_values(module), strict=True))
    tensors = [node for node, value in values.items() if not is_number(value)]
    copies.update((node, graph.node_copy(node)) for node in tensors)
    told = [copies[node] for node in tensors]
    told += [_placeholder(graph, f"size_{index}", fake) for index, fake in enumerate(more)]
    given = {
        str(number): _placeholder(graph, f"number_{index}", number)
        for index, number in enumerate(numbers)
    }
    for index, (node, value) in enumerate(values.items()):
        if index in places:
            place, dim = places[index]
            copies[node] = graph.call_function(_size, (told[place], dim))
        elif is_number(value):
            # What is known by now, or not used, or made of the others.
            if is_open_number(value):
                copies[node] = given.get(str(value)) or _made_of(value, numbers, given)
            else:
                copies[node] = value.node.hint
    graph.output(graph.graph_copy(module.graph, copies))
    _call_methods_of_numbers(graph)
    return graph_module(module, graph)


def _call_methods_of_numbers(graph: Graph) -> None:
    """Replace `n.bit_length()` by its value where n is known: `3.bit_length()` is no Python."""
    for node in graph.find_nodes(op="call_method"):
        number = node.args[0]
        if isinstance(number, int) and not node.all_input_nodes:
            value = getattr(number, node.target)(*node.args[1:], **node.kwargs)
            node.replace_all_uses_with(value)
            graph.erase_node(node)


def follows_from(number: Any, others: Collection[Any]) -> bool:
    """Whether an int, which may be negative, follows from others that are these symbols."""
    if not isinstance(number, torch.SymInt):
        return False
    expression = number.node.expr
    may_be_negative = not number.node.shape_env.bound_sympy(expression).lower >= 0
    return may_be_negative and expression.free_symbols <= set(others)


def _made_of(number: Any, others: Sequence[OpenValue], given: Mapping[str, Node]) -> Node | None:
    """Make the nodes that compute a number of others; None where it is not made of them."""
    found = {o.node.expr: Proxy(given[str(o)]) for o in others if o.node.expr.is_Symbol}
    if not isinstance(number, torch.SymInt) or not number.node.expr.free_symbols <= set(found):
        return None
    made: Proxy = sympy_interp(PythonReferenceAnalysis, found, number.node.expr)
    return made.node


def _placeholder(graph: Graph, name: str, value: Any) -> Node:
    node = graph.placeholder(name)
    node.meta["val"] = value
    return node


def is_open_number(value: Any) -> bool:
    """Whether a value is a number that is not known by now."""
    return is_number(value) and not value.node.expr.is_number


def _size(tensor: torch.Tensor, dim: int) -> int:
    return tensor.shape[dim]


def own_sizes(module: GraphModule, numbers: Sequence[int], fake_mode: Any) -> list[torch.Tensor]:
    """Return a fake `size_tensor` for each of these numbers among the inputs of a graph.

    Raises CaptureError for one that is no size.
    """
    values = [placeholder_values(module)[number] for number in numbers]
    for value in values:
        if not isinstance(value, torch.SymInt):
            raise refusal(f"{value} is a number, but no size")
        if not fake_mode.shape_env.bound_sympy(value.node.expr).lower >= 0:
            raise refusal(f"{value} is a number that may be negative")
    with fake_mode:
        return [size_tensor(value) for value in values]


def told_symbols(value: Any) -> set[Any]:
    """The symbols that are sizes of a tensor, or the one that a number is."""
    found = value.shape if isinstance(value, torch.Tensor) else [value]
    sizes: list[Any] = [size for size in found if is_number(size)]
    return {size.node.expr for size in sizes if size.node.expr.is_Symbol}


def used_symbols(graph: Graph) -> set[Any]:
    """The symbols in the sizes of a graph's tensors and in its arguments."""
    found: set[Any] = set()

    def add(value: Any) -> Any:
        if is_symbolic(value):
            found.update(free_symbols(value))
        return value

    for node in graph.nodes:
        value = node.meta.get("val")
        for part in value if isinstance(value, (tuple, list)) else [value]:
            add(part)
        map_aggregate((node.args, node.kwargs), add)
    return found


def with_sizes_in_place(graph: Graph, given: Mapping[Node, Any] = MappingProxyType({})) -> Graph:
    """A copy of a graph whose arguments are numbers instead of nodes that compute them.

    That is a `torch.SymInt` for a size or an int, a `HostNumber` for a float.

    The graph itself if no node takes any. The copy is for reading, not for running.

    `given`: what floats among its inputs are made of, for a region of a graph.
    """
    numbers = [node for node in graph.nodes if is_number(node.meta.get("val"))]
    if all(node.op == "placeholder" and not node.users for node in numbers):
        return graph
    result = Graph()
    copies: dict[Node, Any] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymFloat):
            copies[node] = given[node] if node in given else host_number(node, copies)
        else:
            copies[node] = value if is_number(value) else _copied(node, result, copies)
        if is_number(value) and node.op == "placeholder":
            result.node_copy(node)
    return result


def _copied(node: Node, graph: Graph, copies: Mapping[Node, Any]) -> Node:
    """A copy of a node in another graph; it gets numbers as arguments once it is made."""
    here = {found: copies[found] for found in node.all_input_nodes}
    numbers = {found: copy for found, copy in here.items() if not isinstance(copy, Node)}
    copy = graph.node_copy(node, lambda found: None if found in numbers else here[found])
    if numbers:
        copy.args = map_arg(node.args, here.__getitem__)
        copy.kwargs = map_arg(node.kwargs, here.__getitem__)
    return copy
