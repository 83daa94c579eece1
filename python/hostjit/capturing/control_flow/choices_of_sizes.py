# SPDX-License-Identifier: Apache-2.0
"""`cond` on a size in a graph of Dynamo's: the branch that the call takes, and a guard.

Dynamo keeps both. Eager has the predicate as a Python bool and calls one branch, and so does a
program, which is one of two: which branch it has is decided before anything is made of the graph,
so that whoever checks the guards of the graph checks this one too.
"""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import (
    ShapeEnv,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
    free_unbacked_symbols,
)

from hostjit.capturing.dynamic_dims import is_number
from hostjit.capturing.traced_graph import attribute_of

__all__ = ["take_branches_of_sizes"]


def take_branches_of_sizes(module: GraphModule) -> None:
    """Put the branches in place of such operators, in the regions of the graph too."""
    while choices := [node for node in module.graph.nodes if _is_choice(node)]:
        for node in choices:
            _take_branch(module, node)
        module.graph.eliminate_dead_code(_stays)
        module.delete_all_unused_submodules()
        module.recompile()
    for part in module.children():
        if isinstance(part, GraphModule):
            take_branches_of_sizes(part)


def _is_choice(node: Node) -> bool:
    """Whether a node is a `cond` on what is known of sizes."""
    if node.target is not torch.ops.higher_order.cond or not isinstance(node.args[0], Node):
        return False
    predicate = node.args[0].meta.get("example_value")
    if not isinstance(predicate, torch.SymBool) or free_unbacked_symbols(predicate):
        return False
    symbols: set[Any] = predicate.node.expr.free_symbols
    return symbols.isdisjoint(_promised(predicate.node.shape_env))


def _promised(environment: ShapeEnv) -> set[Any]:
    """The sizes that the user has given bounds: Dynamo raises where a guard is about less."""
    return {
        symbol
        for fake in environment.tracked_fakes or ()
        if isinstance(fake.symbolic_context, StatelessSymbolicContext)
        for size, constraint in zip(
            fake.fake.shape, fake.symbolic_context.constraint_sizes, strict=True
        )
        if isinstance(constraint, StrictMinMaxConstraint) and is_number(size)
        for symbol in size.node.expr.free_symbols
    }


def _stays(node: Node) -> bool:
    """Tell whether to keep a node without users: not a branch, and not what chose."""
    return node.op != "get_attr" and not isinstance(node.meta.get("example_value"), torch.SymBool)


def _take_branch(module: GraphModule, node: Node) -> None:
    predicate, yes, no, operands = cast("tuple[Any, ...]", node.args)
    chosen = yes if predicate.meta["example_value"] else no
    branch = attribute_of(module, chosen.target)
    copies: dict[Node, Any] = dict(
        zip(branch.graph.find_nodes(op="placeholder"), operands, strict=True)
    )
    with module.graph.inserting_before(node):
        for inner in branch.graph.find_nodes(op="get_attr"):
            name = f"{chosen.target}_{inner.target}".replace(".", "_")
            setattr(module, name, attribute_of(branch, inner.target))
            copies[inner] = module.graph.node_copy(inner)
            copies[inner].target = name
        results: Any = module.graph.graph_copy(branch.graph, copies)
    for user in list(node.users):
        assert user.target is operator.getitem
        user.replace_all_uses_with(results[user.args[1]])
        module.graph.erase_node(user)
    module.graph.erase_node(node)
