# SPDX-License-Identifier: Apache-2.0
"""Copies of compiled modules, compiled functions in one another, and programs of torch.export."""

from __future__ import annotations

import copy
import functools
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Make = Callable[[Any], Any]

by_backend = functools.partial(torch.compile, backend="hostjit")
by_aot = functools.partial(torch.compile, backend="aot_eager")
everywhere = pytest.mark.parametrize("make", [by_backend, hostjit.compile])


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


@everywhere
def test_copies_have_parameters_of_their_own(make: Make) -> None:
    original = model()
    fast = make(original)
    x = torch.randn(4)
    expected = fast(x)
    for copied in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert_close(copied(x), expected)
        with torch.no_grad():
            for parameter in copied.parameters():
                parameter.add_(1)
        changed = copied(x)
        assert not torch.allclose(changed, expected)
        copied.load_state_dict(fast.state_dict())
        assert_close(copied(x), expected)
        changed.sum().backward()
        assert all(parameter.grad is None for parameter in original.parameters())
    assert_close(fast(x), original(x))


@everywhere
def test_state_dicts(make: Make) -> None:
    fast, other = make(model()), make(model())
    x = torch.randn(4)
    fast(x), other(x)
    file = io.BytesIO()
    torch.save(fast.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file))
    assert_close(other(x), fast(x))


def test_a_module_that_compiles_itself() -> None:
    original = model()
    x = torch.randn(4)
    expected = original(x)
    original.compile(backend="hostjit")
    copies = [original, copy.deepcopy(original), pickle.loads(pickle.dumps(original))]
    for module in copies:
        assert_close(module(x), expected)


INNER = [by_backend, by_aot, hostjit.compile, hostjit.capture]
OUTER = [by_backend, by_aot, hostjit.compile, hostjit.capture]


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_compiled_functions_in_compiled_functions(outer: Make, inner: Make) -> None:
    weight = torch.randn(4, requires_grad=True)
    part = inner(lambda x: (x * weight).sin())
    whole = outer(lambda x: part(x) * 2 + (x * weight).cos())
    around = outer(part)
    for rows in (1, 1, 1, 2, 3):
        x = torch.randn(rows, 4)
        expected = (x * weight).sin() * 2 + (x * weight).cos()
        found = whole(x)
        assert_close(found, expected)
        gradients = [torch.autograd.grad(y.sum(), weight)[0] for y in (found, expected)]
        assert_close(*gradients)
        assert_close(around(x), (x * weight).sin())


@everywhere
def test_exported_programs(make: Make) -> None:
    original = model()
    fast = make(torch.export.export(original, (torch.randn(4),)).module())
    for _ in range(3):
        x = torch.randn(4)
        assert_close(fast(x), original(x))


@everywhere
def test_exported_programs_of_any_size(make: Make) -> None:
    original = model()
    sizes = {0: torch.export.Dim("rows", min=2, max=64)}
    exported = torch.export.export(original, (torch.randn(3, 4),), dynamic_shapes=(sizes,))
    fast = make(exported.module())
    for rows in (3, 4, 5, 64):
        x = torch.randn(rows, 4)
        assert_close(fast(x), original(x))
    with pytest.raises(Exception, match="<= 64"):
        fast(torch.randn(100, 4))


@everywhere
def test_exported_programs_that_change_a_buffer(make: Make) -> None:
    class Counter(nn.Module):
        count: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x + self.count

    module: Any = torch.export.export(Counter(), (torch.randn(4),)).module()
    fast = make(module)
    for number in (1, 2, 3):
        x = torch.randn(4)
        assert_close(fast(x), x + number)
        assert_close(module.count, torch.full((4,), float(number)))
