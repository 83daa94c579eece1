# SPDX-License-Identifier: Apache-2.0
"""Small checks and rewrites of a freshly traced ATen graph."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hostjit import _C
from hostjit.capturing.control_flow.node_operators import CONTROL_OPERATORS
from hostjit.capturing.dynamic_dims import is_number, is_symbolic
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.failures import is_library_file

__all__ = [
    "attribute_of",
    "check_aliasing",
    "check_sizes",
    "check_targets",
    "copy_of",
    "lift_constants",
    "placeholder_values",
    "remove_dead_nodes",
    "rename_placeholders",
    "source_location",
    "storage_of",
]

_DTYPES = frozenset(_C.torch_dtypes().values())
# Their operands are of one dtype, which PyTorch's fake tensors do not check for all of them.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "mv", "addmv", "dot")


def storage_of(value: Any) -> int | None:
    """Return the identity of a tensor's storage, None for what is no tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)


def attribute_of(module: torch.nn.Module, path: str) -> Any:
    """Return the value at a dotted path."""
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def copy_of(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Return a copy of a graph, whose arguments may be sizes: PyTorch's own warn of these."""
    made = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        copy = made.create_node(node.op, node.target, name=node.name, type_expr=node.type)
        given = torch.fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
        copy.args, copy.kwargs = given
        copy.meta = dict(node.meta)
        copies[node] = copy
    return made


def lift_constants(traced: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Turn tensor attributes of the traced graph into placeholders after the others."""
    lifted: dict[str, torch.fx.Node] = {}
    values: list[torch.Tensor] = []
    graph = traced.graph
    last = None
    for node in list(graph.nodes):
        if node.op == "placeholder":
            last = node
        if node.op != "get_attr":
            continue
        value = attribute_of(traced, node.target)
        if not isinstance(value, torch.Tensor):
            continue
        if node.target not in lifted:
            with graph.inserting_after(last) if last is not None else graph.inserting_before():
                lifted[node.target] = graph.placeholder(f"constant_{len(values)}")
            last = lifted[node.target]
            last.meta.update(node.meta)
            values.append(value)
        node.replace_all_uses_with(lifted[node.target])
        graph.erase_node(node)
    return values


def placeholder_values(module: torch.fx.GraphModule) -> list[Any]:
    """Return what Dynamo or AOTAutograd traced a graph with: fake tensors, and sizes of theirs."""
    nodes = module.graph.find_nodes(op="placeholder")
    return [node.meta.get("example_value", node.meta.get("val")) for node in nodes]


def rename_placeholders(traced: torch.fx.GraphModule, module: torch.fx.GraphModule) -> None:
    """Give the placeholders Dynamo's names, which say where in the user's data they are."""
    names = [node for node in module.graph.nodes if node.op == "placeholder"]
    ours = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for node, original in zip(ours, names, strict=False):
        node.name = node.target = original.name
        node.meta.setdefault("stack_trace", original.meta.get("stack_trace"))


def check_targets(traced: torch.fx.GraphModule) -> None:
    """Refuse nodes that are no ATen operators, and values of which Host IR has no types.

    These are tensors of quantised dtypes, and numbers and sizes that depend on elements of tensors.
    """
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        _refuse_found_sizes(node, "val")
        _refuse_dtype(node)
        _refuse_mixed_dtypes(node)
        target = node.target
        if is_number(node.meta.get("val")):
            continue
        # What is left of attributes are the regions of control operators.
        if node.op == "get_attr" or target in CONTROL_OPERATORS or target is operator.getitem:
            continue
        if isinstance(target, torch._ops.OpOverload):
            continue
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            f"the program contains {target}, which is not an operator of the dispatcher",
            where=source_location(node),
            hint="write it with tensor operators, or run this function eagerly",
        )


def check_sizes(module: torch.fx.GraphModule) -> None:
    """Refuse a torch-level graph with numbers or sizes that depend on elements of tensors."""
    for node in module.graph.nodes:
        _refuse_found_sizes(node, "example_value")


def _refuse_found_sizes(node: torch.fx.Node, key: str) -> None:
    if _depends_on_elements(node.meta.get(key)):
        raise CaptureError(
            CaptureFailure.DATA_DEPENDENT,
            f"{node.target} gives a number or a size that depends on the values of a tensor",
            where=source_location(node),
            hint="keep it in a tensor, or run this function eagerly",
        )


def _refuse_dtype(node: torch.fx.Node) -> None:
    # PyTorch's fake quantised tensors may say that they are float32: the arguments say it.
    found = (*node.args, *node.kwargs.values(), getattr(node.meta.get("val"), "dtype", None))
    for dtype in found:
        if isinstance(dtype, torch.dtype) and dtype not in _DTYPES:
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"{node.target} is about {dtype}, which Host IR has no type for",
                where=source_location(node),
                hint="run this function eagerly",
            )


def _refuse_mixed_dtypes(node: torch.fx.Node) -> None:
    if not any(node.target is getattr(torch.ops.aten, name).default for name in _PRODUCTS):
        return
    values = [argument.meta.get("val") for argument in node.all_input_nodes]
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    if len(dtypes) > 1:
        raise CaptureError(
            CaptureFailure.USER_EXCEPTION,
            f"{node.target} gets tensors of {' and '.join(sorted(map(str, dtypes)))}",
            where=source_location(node),
            hint="the call raises; run it eagerly to see the error",
        )


def _depends_on_elements(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(_depends_on_elements(item) for item in value)
    return is_symbolic(value) and bool(free_unbacked_symbols(value))


def check_aliasing(traced: torch.fx.GraphModule, storages: Sequence[int | None]) -> None:
    """Refuse a trace in which results that share memory in eager mode would not."""
    outputs = traced.graph.output_node().args[0]
    assert isinstance(outputs, (tuple, list))
    groups: dict[int, int] = {}
    for node, storage in zip(outputs, storages, strict=True):
        if storage is None or not isinstance(node, torch.fx.Node):
            continue
        found = storage_of(node.meta["val"])
        assert found is not None
        if groups.setdefault(storage, found) != found:
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "two results share memory in a way that the functional graph does not keep",
                where=source_location(node),
                hint="return a clone of one of them",
            )


def remove_dead_nodes(graph: torch.fx.Graph) -> None:
    """Remove nodes without users, except writes and random operators (they move generators)."""
    for node in reversed(list(graph.nodes)):
        if node.users or node.op in ("placeholder", "output"):
            continue
        if isinstance(node.target, torch._ops.OpOverload):
            schema = node.target._schema
            tags = node.target.tags
            if schema.is_mutable or torch.Tag.nondeterministic_seeded in tags:
                continue
            if not schema.returns:
                continue
        if node.target in CONTROL_OPERATORS:
            continue  # what is inside may draw random numbers
        graph.erase_node(node)


def source_location(node: torch.fx.Node) -> str | None:
    """Return "file:line" of the innermost user frame that made this node, when it is known."""
    trace = node.meta.get("stack_trace")
    found = None
    for line in (trace or "").splitlines():
        parts = line.strip().split('"')
        if len(parts) == 3 and parts[0] == "File " and parts[2].startswith(", line "):
            if not is_library_file(parts[1]):
                found = f"{parts[1]}:{parts[2].split(',')[1].removeprefix(' line ').strip()}"
    return found
