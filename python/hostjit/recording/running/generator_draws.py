# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a recorded call draws from a generator that it gives to an operator.

A program has no place for the generator, so it calls an operator of hostjit with the number of what
was drawn, which runs PyTorch's operator again.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["DRAW", "Draw", "address_of", "draws_from"]

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define(
    "draw(Tensor[] operands, int number) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)
DRAW = torch.ops.hostjit.draw.default
_numbers = itertools.count()
_draws: weakref.WeakValueDictionary[int, Draw] = weakref.WeakValueDictionary()


def address_of(generator: torch.Generator) -> int:
    """Return what tells a generator from others: PyTorch makes objects for one as needed."""
    found: Any = generator
    return int(found._cdata)


def draws_from(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.Generator | None:
    """Return the generator that an operator draws from; None if it is given none."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    found = (x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Generator))
    return next(found, None)


class Draw:
    """One operator with a generator, and operands in the place of tensors.

    What an operator fills in place is a new tensor with the same strides, so that numbers come in
    the same order.

    Attributes:
        generator: what it draws from.
        number: it among the draws of the process that are still of use.
        operands: the tensors that it takes.
    """

    def __init__(
        self,
        func: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        generator: torch.Generator,
        result: Tensor,
    ) -> None:
        self.generator = generator
        self.fills = func._schema.is_mutable
        self._func = func
        self._leaves, self._spec = pytree.tree_flatten((args, dict(kwargs)))
        self._places = [i for i, x in enumerate(self._leaves) if isinstance(x, Tensor)]
        self.operands = [self._leaves[place] for place in self._places]
        if self.fills:
            self._places, self.operands = self._places[1:], self.operands[1:]
        for place in self._places:
            self._leaves[place] = None
        # Most take no tensors: then nothing has to be put in place at each draw.
        self._is_ready = not self.fills and not self._places
        self._args, self._kwargs = pytree.tree_unflatten(self._leaves, self._spec)
        self._result = result.size(), result.stride(), result.dtype, result.device
        self.number = next(_numbers)
        _draws[self.number] = self

    def result(self) -> Tensor:
        """Return a tensor like the result, without values."""
        sizes, strides, dtype, device = self._result
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    def run(self, operands: Sequence[Tensor]) -> Tensor:
        """Draw."""
        if self._is_ready:
            ready: Tensor = self._func(*self._args, **self._kwargs)
            return ready
        leaves = list(self._leaves)
        for place, operand in zip(self._places, operands, strict=True):
            leaves[place] = operand
        if self.fills:
            leaves[0] = self.result()
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        drawn: Tensor = self._func(*args, **kwargs)
        return drawn


def _draw(operands: Sequence[Tensor], number: int) -> Tensor:
    return _draws[number].run(operands)


def _fake(operands: Sequence[Tensor], number: int) -> Tensor:
    return _draws[number].result()


for _key in ("BackendSelect", "CompositeExplicitAutograd"):
    torch.library.impl(_library, "draw", _key)(_draw)
torch.library.register_fake("hostjit::draw", _fake, lib=_library)
