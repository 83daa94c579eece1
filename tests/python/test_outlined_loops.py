# SPDX-License-Identifier: Apache-2.0
"""Loops of training steps of which each pass is compiled."""

from __future__ import annotations

import contextlib
import copy
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.bytecode.loops import outline_loop

MODEL = nn.Linear(3, 1)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


def loss_of(x: Tensor) -> Tensor:
    return MODEL(x).square().mean()


def update(loss: Tensor) -> None:
    OPTIMIZER.zero_grad()
    loss.backward()
    OPTIMIZER.step()


def sums(x: Tensor, passes: int = 2, *more: float, scale: float = 1.0, **named: float) -> Any:
    total = 0.0
    for _ in range(passes):
        loss = loss_of(x * scale)
        OPTIMIZER.zero_grad()
        loss.backward()
        OPTIMIZER.step()
        total += loss.item()
    return total / max(passes, 1), more, named


def skips(x: Tensor) -> tuple[int, list[float]]:
    done, seen = 0, []
    for row in x:
        if row[0] > 0.5:
            continue
        for _ in range(2):
            done += 1
        loss = loss_of(row)
        loss.backward()
        seen.append(loss.item())
    return done, seen


def keeps_the_last(x: Tensor) -> tuple[int, Tensor]:
    i, loss = -1, x.sum()
    for i in range(3):  # noqa: B007  # its last value is returned
        loss = loss_of(x)
        loss.backward()
    return i, loss.detach()


def nested(x: Tensor) -> list[float]:
    losses = []
    for epoch in range(2):
        for row in x:
            loss = loss_of(row) * (1 + epoch)
            OPTIMIZER.zero_grad()
            loss.backward()
            OPTIMIZER.step()
            losses.append(loss.item())
        losses.append(-1.0)
    return losses


def with_contexts(x: Tensor) -> float:
    total = 0.0
    for row in x:
        OPTIMIZER.zero_grad()
        with torch.autocast("cpu", enabled=False):
            loss = loss_of(row)
        try:
            loss.backward()
        finally:
            total += float(loss)
        OPTIMIZER.step()
    return total


def of_pairs(x: Tensor) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, (row, factor) in {"a": (x, 1.0), "b": (x[:2], 2.0)}.items():
        loss = loss_of(row) * factor
        loss.backward()
        found[name] = loss.item()
    return found


def by_functions(x: Tensor) -> int:
    passes = 0
    for row in x.split(2):
        update(loss_of(row))
        loss_of(row).backward()
        passes += 1
    return passes


def leaves(x: Tensor) -> float:
    total = 0.0
    for row in x:
        loss = loss_of(row)
        loss.backward()
        total += loss.item()
        if total > 0.5:
            break
    return total


def returns(x: Tensor) -> float | None:
    for row in x:
        loss = loss_of(row)
        loss.backward()
        if loss.item() > 0.5:
            return loss.item()
    return None


def within_a_context(x: Tensor) -> float:
    total = 0.0
    with torch.enable_grad():
        for row in x:
            loss = loss_of(row)
            loss.backward()
            total += loss.item()
    return total


def while_true(x: Tensor) -> float:
    total = 0.0
    while total < 1:
        loss = loss_of(x)
        loss.backward()
        total += loss.item() + 0.5
    return total


OUTLINED = (
    *(sums, skips, keeps_the_last, nested, with_contexts, of_pairs, by_functions),
    *(leaves, returns, within_a_context, while_true),
)


def within_a_context_that_may_hide_errors(x: Tensor) -> float:
    total = 0.0
    with contextlib.suppress(ValueError):
        for row in x:
            loss = loss_of(row)
            loss.backward()
            total += loss.item()
    return total


def known_inside(x: Tensor) -> float:
    total = 0.0

    def tell() -> float:
        return total

    for row in x:
        loss = loss_of(row)
        loss.backward()
        total += loss.item()
    return tell()


def may_have_no_value(x: Tensor) -> Tensor:
    for row in x:
        if row[0] > 0:
            loss = loss_of(row)
            loss.backward()
    return loss.detach()


def without_gradients(x: Tensor) -> float:
    total = 0.0
    for row in x:
        total += row.sum().item()
    return total


def deletes(x: Tensor) -> float:
    total = 0.0
    for row in x:
        loss = loss_of(row)
        loss.backward()
        total += loss.item()
        del loss
    return total


REFUSED = (
    *(within_a_context_that_may_hide_errors, known_inside, may_have_no_value),
    *(without_gradients, deletes),
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    MODEL.load_state_dict({"weight": torch.randn(1, 3), "bias": torch.zeros(1)})
    OPTIMIZER.zero_grad()


def state() -> list[Any]:
    return [each.clone() for each in MODEL.parameters()] + [
        each.grad for each in MODEL.parameters()
    ]


def outcomes(function: Callable[..., Any], inputs: list[Tensor], *args: Any, **kwargs: Any) -> Any:
    """Return the results of calls, and the state after each; the state is then as before."""
    before = copy.deepcopy(MODEL.state_dict())
    OPTIMIZER.zero_grad()
    found = []
    for x in inputs:
        try:
            result = function(x, *args, **kwargs)
        except UnboundLocalError as error:
            result = type(error).__name__
        found.append((result, [None if s is None else s.clone() for s in state()]))
    MODEL.load_state_dict(before)
    OPTIMIZER.zero_grad()
    return found


@pytest.mark.parametrize("function", OUTLINED)
def test_the_code_does_what_it_did(function: Any) -> None:
    outlined = outline_loop(function)
    assert outlined is not None
    calls = 0

    def body(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if outlined.variables is not None and outlined.variables.counts:
            args = (*args[:-1], 1, 0)
        return outlined.body(*args)

    inputs = [torch.randn(4, 3) for _ in range(3)]
    assert_close(outcomes(outlined.around(body), inputs), outcomes(function, inputs))
    assert calls >= 3


@pytest.mark.parametrize("function", REFUSED)
def test_code_that_stays_as_it_is(function: Any) -> None:
    assert outline_loop(function) is None


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("function", [*OUTLINED, *REFUSED])
def test_compiled(function: Any) -> None:
    inputs = [torch.randn(4, 3) for _ in range(8)]
    expected = outcomes(function, inputs)
    fast = hostjit.compile(function)
    assert_close(outcomes(fast, inputs), expected, rtol=1e-4, atol=1e-5)
    assert_close(outcomes(fast, inputs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_other_arguments() -> None:
    fast = hostjit.compile(sums)
    x = torch.randn(4, 3)
    for _ in range(2):
        for args, kwargs in (((), {}), ((3,), {}), ((2, 7.0), {"scale": 2.0}), ((0,), {"more": 1})):
            for rows in (x, x[:2]):
                inputs = 4 * [rows]
                expected = outcomes(sums, inputs, *args, **kwargs)
                found = outcomes(fast, inputs, *args, **kwargs)
                assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Learner:
    """An agent as tutorials write them: minibatches in epochs, sums of losses, counters."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.actor = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-2)
        self.updates = 0
        self.history: list[float] = []

    def update(self, states: Tensor, actions: Tensor, returns: Tensor) -> dict[str, float]:
        with torch.no_grad():
            old = self.actor(states).log_softmax(-1).gather(1, actions[:, None])[:, 0]
        policy_losses, value_losses, clipped = 0.0, 0.0, 0
        for _ in range(2):
            for chosen in torch.randperm(len(states)).split(8):
                log = self.actor(states[chosen]).log_softmax(-1)
                ratio = (log.gather(1, actions[chosen][:, None])[:, 0] - old[chosen]).exp()
                value = self.critic(states[chosen])[:, 0]
                advantage = returns[chosen] - value.detach()
                bounded = ratio.clamp(0.8, 1.2) * advantage
                policy_loss = -torch.minimum(ratio * advantage, bounded).mean()
                value_loss = (value - returns[chosen]).square().mean()
                self.optimizer.zero_grad()
                (policy_loss + 0.5 * value_loss).backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimizer.step()
                self.updates += 1
                policy_losses += policy_loss.item()
                value_losses += value_loss.item()
                clipped += int((ratio != ratio.clamp(0.8, 1.2)).sum())
        self.history.append(value_losses)
        return {"policy": policy_losses, "value": value_losses, "clipped": clipped}


@pytest.mark.filterwarnings("ignore:hostjit")
def test_an_update_in_minibatches() -> None:
    mine, other = Learner(), Learner()
    fast = hostjit.compile(mine.update)
    for call in range(6):
        data = torch.randn(20, 4), torch.randint(0, 2, (20,)), torch.randn(20)
        torch.manual_seed(call)
        expected = other.update(*data)
        after = torch.get_rng_state()
        torch.manual_seed(call)
        found = fast(*data)
        assert torch.equal(torch.get_rng_state(), after)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)
        assert_close(mine.parameters, other.parameters, rtol=1e-3, atol=1e-4)
        assert mine.updates == other.updates
        assert mine.history == pytest.approx(other.history, rel=1e-3, abs=1e-4)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_passes_are_recorded() -> None:
    """Each is one program from some calls on: nothing of it runs as Python but its end."""
    fast = hostjit.compile(sums)
    inputs = [torch.randn(4, 3) for _ in range(12)]
    assert_close(outcomes(fast, inputs), outcomes(sums, inputs), rtol=1e-4, atol=1e-5)
    for x in inputs:
        fast(x)
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name))
    try:
        fast(inputs[0])
    finally:
        sys.setprofile(None)
    assert "sums" in names
    assert not {"loss_of", "_wrapped_call_impl", "backward", "step"} & set(names)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_an_error_in_a_pass() -> None:
    """What the passes before have done stays, and the error is the code's."""

    def function(rows: list[Tensor]) -> float:
        total = 0.0
        for row in rows:
            loss = loss_of(row)
            OPTIMIZER.zero_grad()
            loss.backward()
            OPTIMIZER.step()
            total += loss.item()
        return total

    good = [torch.randn(2, 3) for _ in range(2)]
    fast = hostjit.compile(function)
    for _ in range(8):
        fast(good)
    for rows in ([*good, torch.randn(2, 4)], [*good, torch.randn(2, 3, dtype=torch.float64)]):
        before = copy.deepcopy(MODEL.state_dict())
        with pytest.raises(RuntimeError) as expected:
            function(rows)
        after = state()
        MODEL.load_state_dict(before)
        with pytest.raises(RuntimeError) as found:
            fast(rows)
        assert str(found.value) == str(expected.value)
        assert_close(state()[:2], after[:2], rtol=1e-4, atol=1e-5)


def test_it_is_said_once() -> None:
    fast = hostjit.compile(nested)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcomes(fast, [torch.randn(4, 3) for _ in range(8)])
    said = [str(each.message) for each in caught if "hostjit" in str(each.message)]
    assert len(said) == 1
    assert "'nested' runs in parts" in said[0]
