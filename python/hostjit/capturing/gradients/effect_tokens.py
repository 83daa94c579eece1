# SPDX-License-Identifier: Apache-2.0
"""Takes out the tokens by which AOTAutograd orders operators that have effects."""

from __future__ import annotations

import operator

import torch
from torch._higher_order_ops.effects import with_effects

from hostjit.capturing.graph_module import graph_module

__all__ = ["orders_other_effects", "without_effect_tokens"]

# What takes and gives tokens where they are neither inputs nor results.
_WITHIN = (torch.ops.prims._sink_tokens.default, torch.ops.prims._make_token.default)


def orders_other_effects(module: torch.fx.GraphModule) -> bool:
    """Tell whether tokens order what is no operator, such as a print, which has to keep them."""
    ordered = module.graph.find_nodes(op="call_function", target=with_effects)
    return not all(isinstance(node.args[1], torch._ops.OpOverload) for node in ordered)


def without_effect_tokens(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the module with plain calls in place of `with_effects(token, operator, ...)`.

    What a program runs stays in the order of its graph. A token that such a call gives is the one
    that it was given.
    """
    if not any(node.target is with_effects for node in module.graph.nodes):
        return module
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, copies))
    for node, copy in copies.items():
        if node.target is not with_effects:
            continue
        token, target, *args = copy.args
        assert isinstance(token, torch.fx.Node) and isinstance(target, torch._ops.OpOverload)
        with graph.inserting_before(copy):
            call = graph.call_function(target, tuple(args), copy.kwargs)
        call.meta = dict(copy.meta)
        single = len(target._schema.returns) == 1
        for user in list(copy.users):
            assert user.target is operator.getitem
            index = user.args[1]
            assert isinstance(index, int)
            if index == 0 or single:
                user.replace_all_uses_with(call if index else token)
                graph.erase_node(user)
            else:
                user.args = (call, index - 1)
        graph.erase_node(copy)
    for target in _WITHIN:
        for node in graph.find_nodes(op="call_function", target=target):
            graph.erase_node(node)
    return graph_module(module, graph)
