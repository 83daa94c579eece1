# SPDX-License-Identifier: Apache-2.0
"""Whether code that looks at the groups of an optimizer sees more of them than the parameters."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Iterator

import torch

__all__ = ["GROUPS", "reads_numbers"]

GROUPS = "param_groups"
# These look at the parameters alone.
_OF_GRADIENTS = frozenset(
    inspect.unwrap(function).__code__
    for function in (torch.optim.Optimizer.zero_grad, torch.amp.GradScaler._unscale_grads_)
)


@functools.cache
def reads_numbers(code: types.CodeType) -> bool:
    """Tell whether code that names the groups may read more of them than `group["params"]`.

    What its source does not tell it may do.
    """
    if code in _OF_GRADIENTS:
        return False
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return True
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = [node for node in ast.walk(tree) if _is_groups(node)]
    names = {name for node in found for name in _names_of_each(node, parents[node])}
    groups: list[ast.AST] = [x for x in ast.walk(tree) if isinstance(x, ast.Name) and x.id in names]
    for node in found:
        parent = parents[node]
        if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant):
            groups.append(parent)
        elif not any(_names_of_each(node, parent)):
            return True
    return not found or not all(_has_parameters_taken(group, parents) for group in groups)


def _is_groups(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):  # of `getattr`
        return node.value == GROUPS
    return isinstance(node, ast.Attribute) and node.attr == GROUPS


def _names_of_each(groups: ast.AST, parent: ast.AST) -> Iterator[str]:
    """Yield the variable of a loop over the groups."""
    if isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is groups:
        if isinstance(parent.target, ast.Name):
            yield parent.target.id


def _has_parameters_taken(group: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    parent = parents[group]
    if isinstance(group, ast.Name) and isinstance(group.ctx, ast.Store):
        return isinstance(parent, (ast.For, ast.comprehension)) and _is_groups(parent.iter)
    key = parent.slice if isinstance(parent, ast.Subscript) and parent.value is group else None
    return isinstance(key, ast.Constant) and key.value == "params"
