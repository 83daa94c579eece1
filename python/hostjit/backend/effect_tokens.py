# SPDX-License-Identifier: Apache-2.0
"""Takes out the tokens by which AOTAutograd orders operators that have effects."""

from __future__ import annotations

import operator

import torch
from torch._higher_order_ops.effects import with_effects

__all__ = ["without_effect_tokens"]


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
    return torch.fx.GraphModule(module, graph)
