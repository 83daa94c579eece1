# SPDX-License-Identifier: Apache-2.0
"""Modules of graphs, whose Python code is only written when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Graph, GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.nn import Module

__all__ = ["graph_module", "running"]


def graph_module(
    root: Module | dict[str, object], graph: Graph, name: str = "Graph"
) -> GraphModule:
    """Return a module of a graph that has the attributes of `root` which the graph names.

    A call or its `code` writes and compiles Python code, half a millisecond for a small graph. Most
    graphs are only read, or interpreted.
    """
    return _LazyGraphModule(root, graph, name)


def running(module: GraphModule) -> Callable[..., Any]:
    """Return what runs a graph: no user has this module, so it calls no hooks of all modules."""
    if isinstance(module, _LazyGraphModule):
        module.real_recompile()  # or its first call is one of a module
    return module.forward
