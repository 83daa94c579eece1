# SPDX-License-Identifier: Apache-2.0
"""Calls a function eagerly and compiled, and compares all that can be seen of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

__all__ = ["check"]


def check(
    function: Callable[..., Any],
    *calls: tuple[Any, ...],
    runtime: str,
    may_fall_back: bool = False,
    compile: Callable[..., Any] | None = None,
    **arguments: Any,
) -> None:
    """Make the calls on copies of their arguments, in the grad mode of the caller.

    Compiled is by torch.compile, or by what `compile(function, runtime=..., fallback=...)` does.
    Compared are results, their strides, aliases and gradients, and what became of the arguments.
    Nothing may run eagerly unless `may_fall_back`.
    """
    options = {"runtime": runtime, "fallback": may_fall_back}
    if compile is None:
        compiled = torch.compile(function, backend="hostjit", options=options, **arguments)
    else:
        compiled = compile(function, **options)
    for call in calls:
        eager_call, call = copy.deepcopy(call), copy.deepcopy(call)
        torch.manual_seed(1)
        expected = function(*eager_call)
        torch.manual_seed(1)
        with warnings.catch_warnings():
            if not may_fall_back:
                warnings.filterwarnings("error", message="hostjit: .* runs eagerly")
            found = compiled(*call)
        assert_same((found, call), (expected, eager_call))
        assert aliases((found, call)) == aliases((expected, eager_call))
        if torch.is_grad_enabled():
            compare_gradients((found, call), (expected, eager_call))


def compare_gradients(found: Any, expected: Any) -> None:
    for tree in (found, expected):
        results = [leaf for leaf in tensors(tree[0]) if leaf.requires_grad]
        if results:
            torch.manual_seed(2)
            torch.autograd.backward(results, [torch.randn_like(result) for result in results])
    for ours, eager in zip(tensors(found), tensors(expected), strict=True):
        if eager.is_leaf:
            assert_same(ours.grad, eager.grad)


def assert_same(found: Any, expected: Any) -> None:
    leaves, spec = pytree.tree_flatten(found)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert spec == expected_spec
    for ours, eager in zip(leaves, expected_leaves, strict=True):
        assert type(ours) is type(eager)
        if isinstance(eager, nn.Module):
            assert_same(ours.state_dict(), eager.state_dict())
        elif isinstance(eager, torch.Tensor):
            torch.testing.assert_close(ours, eager, equal_nan=True)
            assert ours.stride() == eager.stride()
            assert ours.requires_grad == eager.requires_grad
            assert ours.is_leaf == eager.is_leaf
        else:
            assert ours == eager


def tensors(tree: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, nn.Module):
            found += [*leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, torch.Tensor):
            found.append(leaf)
    return found


def aliases(tree: Any) -> Sequence[tuple[int, int, int]]:
    """Number the objects and the memory behind all tensors, in order of their appearance."""
    objects: dict[int, int] = {}
    memory: dict[int, int] = {}
    return [
        (
            objects.setdefault(id(tensor), len(objects)),
            memory.setdefault(tensor.untyped_storage()._cdata, len(memory)),
            tensor.storage_offset(),
        )
        for tensor in tensors(tree)
    ]
