# SPDX-License-Identifier: Apache-2.0
"""Call on copies of the arguments, from a fixed seed, and keep all that the caller then sees."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from conformance.case import Call, seed_everything
from conformance.optimizers import Steps

__all__ = ["Effects", "called", "effects", "effects_of_steps"]


@dataclasses.dataclass
class Effects:
    """A call's result or exception, and its arguments as they are afterwards.

    Attributes:
        gradients: those of the arguments that want one.
        given: the gradients of the results that they follow from.
    """

    result: Any
    arguments: Any
    error: Exception | None
    gradients: list[torch.Tensor | None] = dataclasses.field(default_factory=list)
    given: list[torch.Tensor] = dataclasses.field(default_factory=list)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments."""
        leaves = tree_flatten(self.arguments)[0]
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is compiled and called: of a module, a copy.

    Operators are builtins, methods, overloads and lambdas: what users compile calls them.
    """
    if isinstance(function, torch.nn.Module):
        return copy.deepcopy(function)

    def call_operator(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call_operator


def effects(
    call: Call,
    function: Callable[..., Any],
    compiled: Callable[..., Any] | None = None,
    given: Sequence[torch.Tensor] = (),
) -> Effects:
    """Call `compiled`, which was made of `function`, or `function` itself.

    `given` are the gradients of the results, random ones without it.
    """
    args, kwargs = arguments = _copied((call.args, call.kwargs))
    if isinstance(function, torch.nn.Module):
        _restore(function, call.function)
    seed_everything()
    gradients: list[torch.Tensor | None] = []
    with torch.set_grad_enabled(call.differentiate is not None):
        try:
            result = (function if compiled is None else compiled)(*args, **kwargs)
            if isinstance(function, torch.nn.Module):
                arguments = (arguments, _state(function))
            if call.differentiate is not None:
                leaves = _differentiable(call.differentiate(result))
                given = given or _random_like(leaves)
                gradients = _gradients(leaves, arguments, given)
        except Exception as error:
            return Effects(None, arguments, error)
    return Effects(result, arguments, None, gradients, list(given))


def _restore(module: torch.nn.Module, original: torch.nn.Module) -> None:
    """Give a module the state of another; a lazy one keeps what its first call made."""
    if any(map(torch.nn.parameter.is_lazy, _state(original))):
        return
    with torch.no_grad():
        for tensor, initial in zip(_state(module), _state(original), strict=True):
            tensor.copy_(initial)


def _state(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _differentiable(leaves: Sequence[Any]) -> list[torch.Tensor]:
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _random_like(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    seed_everything()
    return [torch.randn_like(result) for result in results]


def _gradients(
    results: Sequence[torch.Tensor], arguments: Any, given: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return the gradients of the arguments that want one, for given ones of the results."""
    wanted = [
        leaf
        for leaf in tree_flatten(arguments)[0]
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf
    ]
    if not results or not wanted:
        return []
    return list(torch.autograd.grad(results, wanted, given, allow_unused=True))


def effects_of_steps(call: Steps, compile_step: Callable[[Any], Any]) -> Effects:
    try:
        return Effects(call.run(compile_step), (), None)
    except Exception as error:
        return Effects(None, (), error)


def _copied(arguments: Any) -> Any:
    """Copy arguments with their strides, offsets, and what memory they share."""
    try:
        return copy.deepcopy(arguments)
    except (NotImplementedError, RuntimeError):
        # Compressed sparse tensors, and tensors that autograd made.
        return tree_map(_copied_tensor, arguments)


def _copied_tensor(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    detached = value.detach()
    sparse = value.layout is not torch.strided
    copied = detached.clone() if sparse else copy.deepcopy(detached)
    return copied.requires_grad_(value.requires_grad)
