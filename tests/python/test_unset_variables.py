# SPDX-License-Identifier: Apache-2.0
"""Variables that may have no value where a loop begins are marked, and the marks are never seen."""

import contextlib
import types

import pytest
import torch
from torch import nn

import hostjit
from hostjit.bytecode.loops import outline_loop
from hostjit.bytecode.unset_variables import with_marks


def sometimes(count, factor=None):
    if factor is not None:
        scale = factor * 2
    total = 0
    for index in range(count):
        if factor is not None:
            total += scale
        last = index
    return total, last


def in_an_inner_loop(rows, wanted):
    for row in rows:
        if wanted:
            first = row
            wanted = False
        for item in row:
            first = (*first, item)
    return first


def under_handlers(count, fails):
    with contextlib.suppress(ValueError):
        found = int(fails)
    seen = []
    while count:
        try:
            seen.append(found)
        except UnboundLocalError as error:
            seen.append(str(error))
        count -= 1
    return seen


CALLS = [
    (sometimes, (3,)),
    (sometimes, (3, 2)),
    (sometimes, (0,)),
    (sometimes, (0, 2)),
    (in_an_inner_loop, ([(1, 2), (3,)], True)),
    (in_an_inner_loop, ([(1, 2), (3,)], False)),
    (in_an_inner_loop, ([], True)),
    (under_handlers, (2, "4")),
    (under_handlers, (2, "no")),
]


def outcome(function, args):
    try:
        return function(*args)
    except UnboundLocalError as error:
        return str(error)


@pytest.mark.parametrize(("function", "args"), CALLS)
def test_marked_code_does_what_it_did(function, args):
    code = with_marks(function.__code__)
    assert code is not None
    marked = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__
    )
    assert outcome(marked, args) == outcome(function, args)


def test_code_without_such_variables_has_no_marks():
    def plain(count):
        total = 0
        for index in range(count):
            total += index
        return total

    assert with_marks(plain.__code__) is None


class Trainer:
    """A loop of training steps with a bound that it may not have."""

    def __init__(self, bound):
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.bound = bound
        self.losses = []

    def train(self, samples):
        if self.bound is not None:
            bound = self.bound * 0.5
        losses = []
        for sample in samples():
            values = self.model(sample)
            if self.bound is not None:
                values = values.clamp(-bound, bound)
            loss = values.square().mean()
            losses.append(loss.item())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return losses


def drawn():
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        yield torch.randn(5, 3, generator=generator)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("bound", [None, 0.4])
def test_passes_of_training_steps(bound):
    assert outline_loop(Trainer.train) is not None
    eager, compiled = Trainer(bound), Trainer(bound)
    train = hostjit.compile(compiled.train)
    for _ in range(8):
        assert train(drawn) == pytest.approx(eager.train(drawn), rel=1e-5)
    torch.testing.assert_close([*compiled.model.parameters()], [*eager.model.parameters()])
