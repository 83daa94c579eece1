# SPDX-License-Identifier: Apache-2.0
"""Functions in which NumPy computes run as Python, and the modules that they call are compiled."""

from __future__ import annotations

import collections
import copy
import sys
import threading
from typing import Any

import pytest
import torch
from in_parts import counted_captures
from torch import nn

import hostjit
from hostjit.capturing import capture as capture_module

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class Actor:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        self.critic = nn.Linear(4, 1)
        self.random = numpy.random.default_rng(0)
        self.epsilon, self.count = 0.5, 0
        self.mean, self.last = numpy.zeros(4), numpy.zeros(2, numpy.float32)
        self.frames: Any = collections.deque(maxlen=4)

    @torch.no_grad()
    def normalised(self, x: Any) -> Any:
        self.count += 1
        self.mean = self.mean + (x - self.mean) / self.count
        x = numpy.clip(x - self.mean, -2, 2)
        return self.net(torch.from_numpy(x.astype(numpy.float32)))[0].numpy(), x, x.mean()

    @torch.no_grad()
    def explored(self, x: Any) -> Any:
        if self.random.random() < self.epsilon:
            return self.random.integers(2)
        return self.net(torch.as_tensor(x, dtype=torch.float32)).argmax().item()

    @torch.no_grad()
    def stacked(self, x: Any) -> Any:
        while len(self.frames) < 4:
            self.frames.append(x)
        self.frames.append(x)
        return self.net(torch.from_numpy(numpy.stack(self.frames)).float()).argmax(1).numpy()[0]

    def smoothed(self, x: Any) -> Any:
        x = torch.as_tensor(numpy.hstack([x[:2], self.last]), dtype=torch.float32)
        self.last = 0.9 * self.last + 0.1 * self.net(x).detach().numpy()
        return self.last, self.critic(x)

    def noisy(self, x: Any) -> Any:
        y = self.net(torch.FloatTensor(x.reshape(1, -1))).data.numpy().flatten()
        return (y + self.random.normal(0, 0.1, 2)).clip(-1, 1)


def compare(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        for item, other in zip(found, expected, strict=True):
            compare(item, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
        assert found.requires_grad == expected.requires_grad
    else:
        assert numpy.asarray(found).dtype == numpy.asarray(expected).dtype
        numpy.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def compiled_modules(fast: Any) -> list[Any]:
    return [compiled for _, compiled in fast.owner._arrays._as_python._compiled]


def programs(fast: Any) -> int:
    found = [made for call in compiled_modules(fast) for made in call.specializations]
    return sum(made.program is not None for made in found)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("way", ["normalised", "explored", "stacked", "smoothed", "noisy"])
def test_answers_are_those_of_eager_and_modules_are_compiled(way: str, runtime: str) -> None:
    ours, eager = Actor(), Actor()
    fast = hostjit.compile(getattr(ours, way), runtime=runtime)
    generator = numpy.random.default_rng(1)
    for _ in range(12):
        x = generator.standard_normal(4)
        compare(fast(x), getattr(eager, way)(x.copy()))
        for module in (ours.net, ours.critic):
            assert "_compiled_call_impl" not in vars(module)
    assert programs(fast) == (2 if way == "smoothed" else 1)


def test_a_module_that_is_called_late_is_compiled() -> None:
    actor = Actor()
    fast = hostjit.compile(actor.explored)
    actor.epsilon = 1.0
    for _ in range(100):
        fast(numpy.ones(4))
    assert not compiled_modules(fast)
    actor.epsilon = 0.0
    for _ in range(40):
        fast(numpy.ones(4))
    assert programs(fast) == 1


class Reader(Actor):
    """Reads an array that each call finds another one of."""

    @torch.no_grad()
    def plain(self) -> Any:
        return self.net(torch.from_numpy(self.mean).float()).numpy()

    @torch.no_grad()
    def chosen(self) -> Any:
        return int(self.net(torch.as_tensor(self.mean, dtype=torch.float32)).argmax())

    @torch.no_grad()
    def listed(self) -> Any:
        x = numpy.array(list(self.mean), dtype=numpy.float32)
        return self.net(torch.from_numpy(x)).numpy()

    def returned(self) -> Any:
        return self.net(torch.ones(4)).detach().numpy(), self.mean


@pytest.mark.parametrize("way", ["plain", "chosen", "listed", "returned"])
def test_arrays_in_attributes_that_are_replaced(way: str) -> None:
    ours, eager = Reader(), Reader()
    fast = hostjit.compile(getattr(ours, way))
    for number in range(20):
        ours.mean = eager.mean = numpy.random.default_rng(number).standard_normal(4)
        found = fast()
        compare(found, getattr(eager, way)())
        assert way != "returned" or found[1] is ours.mean
    assert len(fast.specializations) <= 2
    owner = fast.owner._pieces[-1].owner if fast.owner._pieces else fast.owner
    ((_, compiled),) = owner._as_python._compiled
    assert "program @" in compiled.host_ir()


def test_gradients_and_hooks_are_those_of_eager() -> None:
    actor = Actor()
    seen: list[str] = []

    def loss(x: Any) -> Any:
        return actor.net(torch.from_numpy(numpy.tanh(x)).float()).sum()

    fast = hostjit.compile(loss)
    for number in range(4):
        if number == 2:
            actor.net.register_forward_hook(lambda *_: seen.append("called"))
        x = numpy.full(4, number + 1.0)
        gradients = []
        for call in (fast, loss):
            gradients.append(torch.autograd.grad(call(x), list(actor.net.parameters())))
        torch.testing.assert_close(*gradients)
    assert seen == ["called"] * 4


def test_modules_are_as_they_were_after_a_call_that_raises() -> None:
    actor = Actor()

    def call(x: Any) -> Any:
        copies = copy.deepcopy(actor.net)
        assert "_compiled_call_impl" not in vars(copies)
        y = actor.net(torch.from_numpy(numpy.sqrt(x)).float())
        if x[0] > 2:
            raise ValueError("too much")
        return y

    fast = hostjit.compile(call)
    for value in (1.0, 1.0, 3.0, 1.0, 3.0):
        x = numpy.full(4, value)
        if value > 2:
            with pytest.raises(ValueError, match="too much"):
                fast(x)
        else:
            torch.testing.assert_close(fast(x), call(x))
        assert "_compiled_call_impl" not in vars(actor.net)


def test_a_module_that_is_given_arrays_itself() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.inner(torch.from_numpy(numpy.tanh(x)).float())

    net = Net()
    fast = hostjit.compile(net)
    for number in range(4):
        x = numpy.full(4, number + 1.0)
        torch.testing.assert_close(fast(x), net(x))
    assert programs(fast) == 1


def test_whoever_profiles_goes_on_doing_so() -> None:
    fast = hostjit.compile(Actor().normalised)
    fast(numpy.ones(4))

    def profile(*_: Any) -> None:
        pass

    sys.setprofile(profile)
    try:
        fast(numpy.ones(4))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    fast(numpy.ones(4))
    assert sys.getprofile() is None
    fast(numpy.ones(4))
    assert programs(fast) == 1


def test_modules_are_compiled_without_being_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = []
    capture = capture_module.capture

    def noted(*args: Any, **kwargs: Any) -> Any:
        profiles.append(sys.getprofile())
        return capture(*args, **kwargs)

    monkeypatch.setattr(capture_module, "capture", noted)
    fast = hostjit.compile(Actor().normalised)
    for _ in range(3):
        fast(numpy.ones(4))
    assert programs(fast) == 1
    assert profiles == [None] * len(profiles)


class Nested(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) % numpy.lcm(2, 3) != 0:
            x = x + 1
        y: torch.Tensor = self.inner(x)
        return y + 1


def test_modules_in_modules_are_compiled_at_the_first_calls() -> None:
    torch.manual_seed(0)
    model = Nested(Nested(Nested(nn.Linear(4, 4))))
    fast, x = hostjit.compile(model), torch.randn(3, 4)
    for _ in range(6):
        torch.testing.assert_close(fast(x), model(x))
    with counted_captures() as count:
        for _ in range(20):
            torch.testing.assert_close(fast(x), model(x))
    assert count[0] == 0


def test_without_fallback_the_code_is_left_as_it_is() -> None:
    actor, eager = Actor(), Actor()
    fast = hostjit.compile(actor.normalised, fallback=False)
    for number in range(3):
        x = numpy.full(4, number + 1.0)
        compare(fast(x), eager.normalised(x))


def test_threads_share_the_modules() -> None:
    actor = Actor()

    def call(x: Any) -> Any:
        return actor.net(torch.from_numpy(numpy.tanh(x)).float())

    fast = hostjit.compile(call)
    x = numpy.ones(4)
    expected, wrong = call(x), []

    def run() -> None:
        for _ in range(200):
            if not torch.allclose(fast(x), expected):
                wrong.append(x)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert "_compiled_call_impl" not in vars(actor.net)


@pytest.mark.parametrize("kind", ["scalar", "reversed", "constant", "named tuple"])
def test_arguments_that_are_no_tensors(kind: str) -> None:
    actor = Actor()
    pair = collections.namedtuple("pair", "x y")
    value: Any = {
        "scalar": numpy.float64(2),
        "reversed": numpy.arange(4.0)[::-1],
        "constant": numpy.ones(4),
        "named tuple": pair(numpy.ones(4), 2),
    }[kind]
    if kind == "constant":
        value.flags.writeable = False

    def call(x: Any) -> Any:
        if isinstance(x, tuple):
            x = x.x * x.y
        return actor.net(torch.as_tensor(numpy.asarray(x) * numpy.ones(4), dtype=torch.float32)), x

    fast = hostjit.compile(call)
    for _ in range(3):
        found, expected = fast(value), call(value)
        torch.testing.assert_close(found[0], expected[0])
        numpy.testing.assert_array_equal(found[1], expected[1])
        assert type(found[1]) is type(expected[1])
    assert kind == "scalar" or programs(fast) == 1
    tensor = torch.ones(4)
    torch.testing.assert_close(fast(tensor)[0], call(tensor)[0])
