# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a recorded call draws from a generator that it gives to an operator.

A program has no place for the generator, so it calls an operator of hostjit with the number of what
was drawn, which runs PyTorch's operator again, and before that seeds the generator as the call did.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["DRAW", "SEED", "Draw", "UsedGenerator", "address_of", "draws_from", "signed"]

_library = torch.library.Library("hostjit", "FRAGMENT")
_library.define(
    "draw(Tensor[] operands, int number) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)
_library.define("draw_seed(int number, int seed) -> ()", tags=(torch.Tag.nondeterministic_seeded,))
DRAW = torch.ops.hostjit.draw.default
SEED = torch.ops.hostjit.draw_seed.default
_numbers = itertools.count()
_draws: weakref.WeakValueDictionary[int, Draw] = weakref.WeakValueDictionary()
_used: weakref.WeakValueDictionary[int, UsedGenerator] = weakref.WeakValueDictionary()


def address_of(generator: torch.Generator) -> int:
    """Return what tells a generator from others: PyTorch makes objects for one as needed."""
    found: Any = generator
    return int(found._cdata)


def signed(seed: int) -> int:
    """Return a seed of 64 bits as operators take it."""
    return seed - ((seed >> 63) << 64)


def draws_from(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.Generator | None:
    """Return the generator that an operator draws from; None if it is given none."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    found = (x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Generator))
    return next(found, None)


class UsedGenerator:
    """A generator that a recorded call draws from or seeds.

    Attributes:
        generator: the one of the recorded call.
        is_made: the call made it. Each thread that replays has another, which nobody else sees.
        seed: what it was seeded with and has not drawn since; None if that is not known.
        number: it among those of the process that are still of use.
    """

    def __init__(self, generator: torch.Generator, is_made: bool) -> None:
        self.generator = generator
        self.is_made = is_made
        self.seed = generator.initial_seed() if is_made else None
        self._of_thread = threading.local()
        self.number = next(_numbers)
        _used[self.number] = self

    def note_seed(self) -> None:
        """Note that the recorded call has seeded it."""
        self.seed = self.generator.initial_seed()

    def take_seed(self) -> int | None:
        """Return the seed, as what draws next begins with it."""
        seed, self.seed = self.seed, None
        return seed

    def is_seeded(self) -> bool:
        """Tell whether it is as its seed leaves a generator, if it has one."""
        if self.seed is None:
            return True
        fresh = torch.Generator(self.generator.device).manual_seed(self.seed)
        return torch.equal(fresh.get_state(), self.generator.get_state())

    def current(self) -> torch.Generator:
        """Return the one that a replay in this thread draws from."""
        if not self.is_made:
            return self.generator
        found: torch.Generator | None = getattr(self._of_thread, "generator", None)
        if found is None:
            found = self._of_thread.generator = torch.Generator(self.generator.device)
        return found


class Draw:
    """One operator with a generator, and operands in the place of tensors.

    What an operator fills in place is a new tensor with the same strides, so that numbers come in
    the same order.

    Attributes:
        used: what it draws from.
        number: it among the draws of the process that are still of use.
        operands: the tensors that it takes.
    """

    def __init__(
        self,
        func: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        used: UsedGenerator,
        result: Tensor,
    ) -> None:
        self.used = used
        self._seed = used.take_seed()
        self.fills = func._schema.is_mutable
        self._func = func
        self._leaves, self._spec = pytree.tree_flatten((args, dict(kwargs)))
        self._places = [i for i, x in enumerate(self._leaves) if isinstance(x, Tensor)]
        self.operands = [self._leaves[place] for place in self._places]
        if self.fills:
            self._places, self.operands = self._places[1:], self.operands[1:]
        for place in self._places:
            self._leaves[place] = None
        generators = (i for i, x in enumerate(self._leaves) if isinstance(x, torch.Generator))
        self._place_of_generator = next(generators)
        # Most take no tensors: then nothing has to be put in place at each draw.
        self._is_ready = not self.fills and not self._places and not used.is_made
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
        generator = self.used.current()
        if self._seed is not None:
            generator.manual_seed(self._seed)
        if self._is_ready:
            ready: Tensor = self._func(*self._args, **self._kwargs)
            return ready
        leaves = list(self._leaves)
        leaves[self._place_of_generator] = generator
        for place, operand in zip(self._places, operands, strict=True):
            leaves[place] = operand
        if self.fills:
            leaves[0] = self.result()
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        drawn: Tensor = self._func(*args, **kwargs)
        return drawn


def _draw(operands: Sequence[Tensor], number: int) -> Tensor:
    return _draws[number].run(operands)


def _seed(number: int, seed: int) -> None:
    _used[number].current().manual_seed(seed % (1 << 64))


def _fake(operands: Sequence[Tensor], number: int) -> Tensor:
    return _draws[number].result()


for _key in ("BackendSelect", "CompositeExplicitAutograd"):
    torch.library.impl(_library, "draw", _key)(_draw)
    torch.library.impl(_library, "draw_seed", _key)(_seed)
torch.library.register_fake("hostjit::draw", _fake, lib=_library)
torch.library.register_fake("hostjit::draw_seed", lambda number, seed: None, lib=_library)
