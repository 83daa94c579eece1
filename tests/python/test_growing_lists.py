# SPDX-License-Identifier: Apache-2.0
"""Lists and deques outside of the arguments that calls add to: one program for any length."""

from __future__ import annotations

import collections
import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._pytree import tree_map

import hostjit

HISTORY: list[Tensor] = []


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
    HISTORY.clear()


class Recorder(nn.Module):
    """Has lists and deques that `forward` changes, by the function that it is given."""

    def __init__(self, change: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.seen: list[Any] = []
        self.last: collections.deque[Any] = collections.deque(maxlen=3)
        self.all: collections.deque[Any] = collections.deque()
        self.nested: dict[str, list[Any]] = {"a": []}
        self.step = 0
        self.change = change

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x).tanh()
        found = self.change(self, y)
        return y if found is None else found

    def state(self) -> tuple[Any, ...]:
        return self.seen, list(self.last), list(self.all), self.nested, self.step


def append(m: Recorder, y: Tensor) -> None:
    m.seen.append(y.mean().detach())


def append_several(m: Recorder, y: Tensor) -> None:
    m.seen.append(y[0])
    for i in range(2):
        m.seen.append((i, {"y": y * i}))
    m.last.append(y)
    m.seen.append(None)


def extend(m: Recorder, y: Tensor) -> None:
    m.seen.extend([y, y + 1])
    m.seen.extend((1, 2.5))


def add(m: Recorder, y: Tensor) -> None:
    m.seen += [y, 1]


def deques(m: Recorder, y: Tensor) -> None:
    m.last.append(y)
    m.last.appendleft(y.sum())
    m.last.extend([1, 2])
    m.all.extendleft([y, 3])


def in_a_dict(m: Recorder, y: Tensor) -> None:
    m.nested["a"].append(y * 2)


def with_a_number(m: Recorder, y: Tensor) -> Tensor:
    m.step += 1
    m.seen.append(m.step)
    return y * m.step


def of_a_bound_method(m: Recorder, y: Tensor) -> None:
    add = m.seen.append
    add(y)
    add(y + 1)


def returned(m: Recorder, y: Tensor) -> Any:
    m.seen.append(y)
    return y + 1, m.seen


def global_list(m: Recorder, y: Tensor) -> None:
    HISTORY.append(y)


def numbers_read(m: Recorder, y: Tensor) -> None:
    m.seen.append(y.mean().item())
    m.seen.append(float(y.sum()))
    m.seen.append((y > 0).any().item())
    m.seen.append(int(y.argmax()))
    m.last.append(y[0, 0].item())
    m.all.appendleft(y.argmax().item())


def numbers_read_before_a_change(m: Recorder, y: Tensor) -> Tensor:
    total = y.sum().detach()
    m.seen.append(total.item())
    total += 1
    m.seen.append(total.item())
    return y * total


def numbers_read_in_a_loop(m: Recorder, y: Tensor) -> None:
    for row in y:
        m.seen.append(row.sum().item())


ONE_PROGRAM = (
    *(append, append_several, extend, add, deques, in_a_dict, with_a_number, of_a_bound_method),
    *(returned, global_list, numbers_read, numbers_read_before_a_change, numbers_read_in_a_loop),
)


def looked_at(m: Recorder, y: Tensor) -> Tensor:
    m.seen.append(y)
    return y * len(m.seen)


def looked_at_first(m: Recorder, y: Tensor) -> Tensor | None:
    if m.seen and len(m.seen) % 2:
        m.seen.append(y * 2)
        return m.seen[-1]
    m.seen.append(y)
    return None


def iterated(m: Recorder, y: Tensor) -> Tensor:
    m.last.append(y.detach())
    return torch.stack(list(m.last)).mean(0)


def popped(m: Recorder, y: Tensor) -> None:
    m.seen.append(y)
    if len(m.seen) > 2:
        m.seen.pop(0)


def by_itself(m: Recorder, y: Tensor) -> None:
    m.seen.append(y)
    m.seen.extend(m.seen[:1])


def replaced(m: Recorder, y: Tensor) -> None:
    m.seen.append(y)
    m.seen = [y + 1]


def mapped(m: Recorder, y: Tensor) -> Tensor:
    m.seen.append(y)
    return torch.stack(tree_map(lambda x: x + 1, m.seen)).sum(0)


def contains(m: Recorder, y: Tensor) -> Tensor:
    m.all.append(m.step)
    m.step += 1
    return y * (2 if 3 in m.all else 3)


def of_two_names(m: Recorder, y: Tensor) -> Tensor:
    m.nested["b"] = m.seen
    m.seen.append(y)
    return y + len(m.nested["b"])


def extended_by_a_generator(m: Recorder, y: Tensor) -> None:
    m.seen.extend(y * i for i in range(2))


def with_a_print(m: Recorder, y: Tensor) -> Tensor:
    m.seen.append(y)
    print(end="")
    m.seen.append(y + 1)
    return y * 2


def number_kept(m: Recorder, y: Tensor) -> Tensor:
    total = y.sum().item()
    m.seen.append(total)
    return y * total


def number_computed(m: Recorder, y: Tensor) -> None:
    m.seen.append(y.sum().item() * 2)


def number_of_another_type(m: Recorder, y: Tensor) -> None:
    m.seen.append(int(y.sum()))
    m.seen.append(float(y.argmax()))


def number_of_several(m: Recorder, y: Tensor) -> None:
    try:
        m.seen.append(y.item())
    except RuntimeError:
        m.seen.append(None)


LOOKED_AT = (
    *(number_kept, number_computed, number_of_another_type, number_of_several),
    *(looked_at, looked_at_first, iterated, popped, by_itself, replaced, of_two_names),
    *(extended_by_a_generator, with_a_print, mapped, contains),
)


def compare(
    change: Callable[..., Any], wrap: Callable[..., Any], calls: int = 6
) -> tuple[Any, Recorder]:
    model = Recorder(change)
    other = copy.deepcopy(model)
    fast = wrap(model)
    history: list[Tensor] = []
    for _ in range(calls):
        x = torch.randn(2, 3)
        found = fast(x)
        mine = [*HISTORY]
        HISTORY[:] = history
        expected = other(x)
        history = [*HISTORY]
        assert_close(mine, history)
        HISTORY[:] = mine
        assert_close(found, expected)
        assert_close(model.state(), other.state(), rtol=1e-5, atol=1e-6)
    if change is returned:
        assert found[1] is model.seen
    return fast, model


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("change", ONE_PROGRAM)
def test_one_program(change: Callable[..., Any], runtime: str) -> None:
    def wrap(model: Recorder) -> Any:
        return hostjit.compile(model, runtime=runtime, fallback=False)

    with torch.no_grad():
        fast, _ = compare(change, wrap)
    assert len(fast.specializations) == 1 + (change is with_a_number)


@pytest.mark.parametrize("change", [append, deques, with_a_number, numbers_read])
def test_gradients(change: Callable[..., Any]) -> None:
    fast, model = compare(change, hostjit.compile)
    fast(torch.randn(2, 3)).sum().backward()
    assert model.linear.weight.grad is not None
    assert len(fast.specializations) == 1 + (change is with_a_number)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("change", LOOKED_AT)
def test_code_that_looks_at_the_list(change: Callable[..., Any]) -> None:
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        compare(change, hostjit.compile)
    assert not [str(w.message) for w in caught if "raises when it is captured" in str(w.message)]


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("change", [*ONE_PROGRAM, looked_at, popped, iterated])
def test_recorded(change: Callable[..., Any]) -> None:
    with torch.no_grad():
        compare(change, hostjit.capture)


def test_recordings_leave_them_to_compile() -> None:
    with torch.no_grad(), pytest.warns(UserWarning, match="hostjit.compile answers all calls"):
        compare(append, hostjit.capture)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("change", [*ONE_PROGRAM, *LOOKED_AT])
def test_through_torch_compile(change: Callable[..., Any]) -> None:
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    with torch.no_grad():
        compare(change, lambda model: torch.compile(model, backend="hostjit"))
    if change in (append, append_several, extend, add, deques, in_a_dict, returned, global_list):
        assert graphs["unique_graphs"] - before == 1


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile_it", [hostjit.compile, partial(torch.compile, backend="hostjit")])
def test_lists_of_frames_below(compile_it: Callable[..., Any]) -> None:
    """A list of the frame itself, one that is handed on, and one that two names have."""
    kept: list[Tensor] = []

    def note(values: list[Tensor], y: Tensor) -> Tensor:
        values.append(y)
        return (y * 2).tanh()

    def both(first: list[Tensor], second: list[Tensor], y: Tensor) -> Tensor:
        first.append(y)
        return y * len(second)

    def step(x: Tensor, own: list[Tensor]) -> Tensor:
        print(end="")
        x = note(own, x) + note(kept, x)
        print(end="")
        other: list[Tensor] = []
        return both(own, own if x.shape[0] == 3 else other, x) + note(other, x)

    def run(function: Callable[..., Tensor]) -> list[Any]:
        kept.clear()
        own: list[Tensor] = []
        found = [
            function(torch.linspace(0, n % 3, 2 + n % 2) + torch.zeros(()), own) for n in range(12)
        ]
        return [found, [*kept], own]

    torch._dynamo.reset()
    assert_close(run(compile_it(step)), run(step))


def test_numbers_read_have_their_types() -> None:
    model = Recorder(numbers_read)
    fast = hostjit.compile(model, fallback=False)
    with torch.no_grad():
        for _ in range(2):
            fast(torch.randn(2, 3))
    assert [type(number) for number in model.seen] == 2 * [float, float, bool, int]


def test_a_number_logged_ahead_of_a_backward_pass() -> None:
    """The rest of the call is compiled: no method of the list is among its arguments."""
    model, losses = nn.Linear(3, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = hostjit.compile(step)
    other, rate = copy.deepcopy(model), 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(12):
            x = torch.randn(4, 3)
            expected = other(x).square().mean()
            gradients = torch.autograd.grad(expected, [*other.parameters()])
            with torch.no_grad():
                for parameter, gradient in zip(other.parameters(), gradients, strict=True):
                    parameter -= rate * gradient
            assert_close(fast(x), expected.detach())
            assert losses[-1] == pytest.approx(expected.item())
            assert_close([*model.parameters()], [*other.parameters()])
    assert len(losses) == 12


def test_a_list_in_the_place_of_another() -> None:
    model = Recorder(append)
    fast = hostjit.compile(model, fallback=False)
    with torch.no_grad():
        fast(torch.randn(2, 3))
        first = model.seen
        model.seen = []
        fast(torch.randn(2, 3))
        fast(torch.randn(2, 3))
    assert len(first) == 1
    assert len(model.seen) == 2
    assert len(fast.specializations) == 1
    model.seen = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        fast(torch.randn(2, 3))


def test_a_closure() -> None:
    seen: list[Tensor] = []

    def step(x: Tensor) -> Tensor:
        seen.append(x.sum())
        return x * 2

    fast = hostjit.compile(step, fallback=False)
    for count in range(5):
        x = torch.randn(3)
        assert_close(fast(x), x * 2)
        assert len(seen) == count + 1
        assert_close(seen[-1], x.sum())
    assert len(fast.specializations) == 1


def test_an_argument_that_is_a_list() -> None:
    def step(seen: list[Tensor], x: Tensor) -> Tensor:
        seen.append(x * 2)
        return x + len(seen)

    fast = hostjit.compile(step)
    mine: list[Tensor] = []
    other: list[Tensor] = []
    for _ in range(4):
        x = torch.randn(3)
        assert_close(fast(mine, x), step(other, x))
        assert_close(mine, other)
