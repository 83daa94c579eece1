# SPDX-License-Identifier: Apache-2.0
"""Graphs in which operators find sizes and numbers: what no program can have whole.

Dynamo makes them where `capture_scalar_outputs` or `capture_dynamic_output_shape_ops` is set.
`hostjit.compile` runs such a graph in parts, which go on with what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from hostjit.capturing.traced_graph import placeholder_values
from hostjit.compiling.options import Options

__all__ = ["compile_in_parts", "finds_sizes"]

_OPEN = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


def finds_sizes(module: torch.fx.GraphModule) -> bool:
    """Tell whether some operator gives a size or a number that depends on values of a tensor."""
    made = (node.meta.get("example_value") for node in module.graph.nodes)
    return bool(_found(made) - _found(placeholder_values(module)))


def compile_in_parts(
    module: torch.fx.GraphModule, name: str, options: Options
) -> Callable[..., Any]:
    """Return a callable that answers as the graph does, gradients included."""
    from hostjit.compile import compile

    vars(module)["__name__"] = name  # what warnings call it
    return compile(
        module,
        runtime=options.runtime,
        fallback=options.fallback,
        **options.choices().keywords(),
    )


def _found(values: Iterable[Any]) -> set[Any]:
    leaves = [leaf for value in values for leaf in pytree.tree_leaves(value)]
    found: set[Any] = set()
    return found.union(*(free_unbacked_symbols(leaf) for leaf in leaves if isinstance(leaf, _OPEN)))
