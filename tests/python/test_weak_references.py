# SPDX-License-Identifier: Apache-2.0
"""Compiled functions keep alive nothing that their code knows by weak references alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit
from hostjit.capturing.errors import CaptureError


class Owner:
    gain = 2


class Part(nn.Module):
    def __init__(self, owner: Any) -> None:
        super().__init__()
        self.owner = weakref.ref(owner)

    def forward(self, x: Tensor) -> Tensor:
        owner = self.owner()
        return x if owner is None else x * owner.gain


class Whole(nn.Module):
    gain = 3

    def __init__(self) -> None:
        super().__init__()
        self.part = Part(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) + 1


def is_alive(owner: Owner) -> Callable[[Tensor], Tensor]:
    reference = weakref.ref(owner)
    return lambda x: x * (1 if reference() is not None else 0)


def counted(owner: Owner) -> Callable[[Tensor], Tensor]:
    owners = weakref.WeakSet([owner])
    return lambda x: x + len(owners)


def summed(owner: Owner) -> Callable[[Tensor], Tensor]:
    gains = weakref.WeakKeyDictionary({owner: 5})
    return lambda x: x + sum(gains.values())


def looped(owner: Owner) -> Callable[[Tensor], Tensor]:
    reference = weakref.ref(owner)

    def function(x: Tensor) -> Tensor:
        for _ in range(2):
            if x.sum() > 0:
                x = x * getattr(reference(), "gain", 0)
        return x

    return function


@pytest.mark.filterwarnings("ignore:hostjit.*runs (eagerly|in parts)")
@pytest.mark.parametrize("make", [Part, is_alive, counted, summed, looped])
def test_what_weak_references_refer_to_goes(make: Callable[[Owner], Any]) -> None:
    owner = Owner()
    reference = weakref.ref(owner)
    function = make(owner)
    fast = hostjit.compile(function)
    x = torch.ones(2)
    for gain in (2, 2, 3, 3):
        owner.gain = gain
        assert torch.equal(fast(x), function(x))
    del owner
    gc.collect()
    assert reference() is None
    assert torch.equal(fast(x), function(x))


def test_what_the_code_has_from_elsewhere_is_compiled() -> None:
    model = Whole()
    fast = hostjit.compile(model, fallback=False)
    x = torch.ones(2)
    for gain in (3, 3, 4):
        model.gain = gain
        assert torch.equal(fast(x), x * gain + 1)


def test_without_fallback_it_is_an_error() -> None:
    owner = Owner()
    with pytest.raises(CaptureError, match="a weak reference to an object"):
        hostjit.compile(is_alive(owner), fallback=False)(torch.ones(2))
