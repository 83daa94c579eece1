# SPDX-License-Identifier: Apache-2.0
"""What varied in one kind of call is open in the other kinds from the first call on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit


class Model(nn.Module):
    """Takes what models of transformers take, in any combination."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16)

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        labels: Tensor | None = None,
        positions: Tensor | None = None,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        x = self.embed(ids)
        if positions is not None:
            x = x + positions[..., None] / 10
        if mask is not None:
            x = x * mask[..., None]
        if scale is not None:
            x = x * scale
        logits = self.head(x)
        if labels is None:
            return logits, None
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def _given(batch: int, length: int) -> dict[str, Any]:
    sizes = (batch, length)
    return {
        "mask": (torch.rand(sizes) > 0.3).float(),
        "labels": torch.randint(16, sizes),
        "positions": torch.arange(length).expand(sizes).clone(),
    }


def _kinds() -> list[tuple[str, ...]]:
    names = ("mask", "labels", "positions")
    return [kind for count in range(4) for kind in itertools.combinations(names, count)]


def _sizes() -> Iterator[tuple[int, int]]:
    return iter([(2, 5), (3, 7), (4, 6), (2, 9), (5, 11)])


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with no_warnings():
        yield


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind_by_kind", [False, True])
def test_eight_kinds_of_keywords(gradients: bool, kind_by_kind: bool) -> None:
    model = Model()
    fast = hostjit.compile(model)
    pairs = [(kind, sizes) for sizes in _sizes() for kind in _kinds()]
    if kind_by_kind:
        pairs = [(kind, sizes) for kind in _kinds() for sizes in _sizes()]
    with torch.set_grad_enabled(gradients):
        for number, (kind, sizes) in enumerate(pairs):
            torch.manual_seed(number)
            ids = torch.randint(16, sizes)
            given = {name: value for name, value in _given(*sizes).items() if name in kind}
            assert_close(fast(ids, **given), model(ids, **given))
    # One for any size of each kind; those for the sizes of first calls aren't counted.
    assert len(fast.specializations) <= (9 if kind_by_kind else 16)


def test_positions_and_keywords_are_one_parameter() -> None:
    fast = hostjit.compile(lambda x, y=None: x * 2 if y is None else x * 2 + y)
    with torch.no_grad():
        fast(torch.randn(5, 3))
        fast(torch.randn(6, 3))
        for size in (7, 8, 9):
            x, y = torch.randn(size, 3), torch.randn(size, 3)
            assert_close(fast(x=x), x * 2)
            assert_close(fast(x, y), x * 2 + y)
            assert_close(fast(x, y=y), x * 2 + y)
    assert len(fast.specializations) == 2 + 3


def _scaled(x: Tensor, n: int, y: Tensor | None = None) -> Tensor:
    return x * n if y is None else x * n + y


@pytest.mark.parametrize("last", [lambda x: {}, lambda x: {"y": x}])
def test_numbers_are_open_in_other_kinds(last: Callable[[Tensor], dict[str, Any]]) -> None:
    fast = hostjit.compile(_scaled)
    x = torch.randn(4)
    with torch.no_grad():
        fast(x, 5)
        fast(x, 6)
        for n in (7, 8, 9):
            assert_close(fast(x, n, x + 1), _scaled(x, n, x + 1))
            assert_close(fast(x.double(), n, **last(x)), _scaled(x.double(), n, **last(x)))
    assert len(fast.specializations) == 2 + 2


def test_sizes_that_do_not_vary_stay_known() -> None:
    fast = hostjit.compile(lambda x, y=None: x.sum(0) if y is None else x.sum(0) + y)
    with torch.no_grad():
        fast(torch.randn(5, 3))
        fast(torch.randn(6, 3))
        fast(torch.randn(6, 3), torch.randn(3))
    assert "3" in fast.host_ir()
    assert fast.host_ir().count("size(") == 1
