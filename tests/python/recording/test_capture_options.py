# SPDX-License-Identifier: Apache-2.0
"""The options of `hostjit.capture`, what it tells of recordings, and the ways to call it."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from recorded_beside_eager import check
from torch import nn
from torch.testing import assert_close

import hostjit

randn = torch.randn
Pair = namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize("warmup", [0, 1, 3, 20])
def test_warmup(warmup: int) -> None:
    fast = hostjit.capture(lambda x: x * 2, warmup=warmup)
    for _ in range(warmup):
        fast(randn(3))
        assert fast.captured is None
    fast(randn(3))
    assert fast.captured.operators == 1
    for _ in range(3):
        x = randn(3)
        assert_close(fast(x), x * 2)


def test_decorators() -> None:
    @hostjit.capture(warmup=0)
    def double(x: torch.Tensor) -> torch.Tensor:
        """Doubles."""
        return x * 2

    assert double.__name__ == "double"
    assert double.__doc__ == "Doubles."
    assert_close(double(torch.ones(2)), torch.full((2,), 2.0))
    assert "launch_kernel" in double.host_ir()
    assert "define" in double.llvm_ir()


def test_unknown_choices() -> None:
    for name in ("on_mismatch", "on_read", "runtime"):
        with pytest.raises(hostjit.Error, match=f"unknown {name} 'x', expected"):
            hostjit.capture(len, **{name: "x"})
    with pytest.raises(hostjit.Error, match="warmup is -1"):
        hostjit.capture(len, warmup=-1)
    with pytest.raises(TypeError, match="takes a callable, got int"):
        hostjit.capture(3)


@torch.no_grad()
def test_modules_and_methods() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    fast = hostjit.capture(model)
    bound = hostjit.capture(model[0].forward)
    for _ in range(4):
        x = randn(2, 3)
        assert_close(fast(x), model(x))
        assert_close(bound(x), model[0](x))
    model[0].weight = nn.Parameter(randn(4, 3))
    assert_close(fast(x), model(x))
    model[0].weight.data = randn(4, 3)
    assert_close(fast(x), model(x))
    model[1] = nn.ReLU()
    assert_close(fast(x), model(x))
    model[0].register_forward_hook(lambda module, args, result: result + 1)
    assert_close(fast(x), model(x))


def test_containers() -> None:
    def call(pair: Pair, *more: torch.Tensor, **named: Any) -> Any:
        total = pair.left + pair.right + sum(more)
        return Pair(total, OrderedDict(last=named["z"] * 2)), total.shape, torch.max(total, 0)

    def arguments() -> tuple[Any, ...]:
        return Pair(randn(3), randn(3)), randn(3), randn(3)

    fast = hostjit.capture(call)
    for _ in range(4):
        args, z = arguments(), randn(2)
        found, expected = fast(*args, z=z), call(*args, z=z)
        assert_close(found[0].left, expected[0].left)
        assert type(found[0].right) is OrderedDict
        assert found[1] == expected[1]
        assert found[2].indices == expected[2].indices
    assert fast.captured is not None


def test_static_inputs() -> None:
    x, y = randn(3), randn(3)
    fast = hostjit.capture(
        lambda state, z: state * z, static_inputs=["state"], on_mismatch="raise", warmup=0
    )
    fast(x, randn(3))
    z = randn(3)
    assert_close(fast(x, z), x * z)
    with pytest.raises(hostjit.MismatchError, match="'state' is a static input"):
        fast(y, z)
    again = hostjit.capture(lambda state, z: state * z, static_inputs=["state"], warmup=0)
    for state in (x, y, x, y):
        assert_close(again(state, z), state * z)
    assert len(again.specializations) == 2


def test_prune_counts() -> None:
    weight, scale = randn(3, 3), randn(3)

    def call(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fixed = (weight @ weight).exp()
        scale.mul_(0.5)  # written, so what reads it stays
        return x @ fixed + scale.exp(), fixed

    states = []
    for prune in (False, True):
        torch.manual_seed(0)
        weight.copy_(torch.eye(3))
        scale.fill_(1)
        fast = hostjit.capture(call, prune=prune)
        results = []
        for number in range(6):
            if number == 4:
                weight.mul_(2)
            results.append(fast(torch.full((2, 3), float(number))))
        states.append(results)
        assert (fast.captured.pruned > 0) == prune
    assert_close(states[0], states[1])
    assert len({result[1].data_ptr() for result in states[1]}) == 6


def test_prune_keeps_random_numbers_and_arguments() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3).exp() + torch.arange(3) * 2

    check(call, [(randn(3),) for _ in range(4)], prune=True)


@torch.no_grad()
def test_prune_returns_new_tensors() -> None:
    weight, x = randn(3, 3), randn(3, 3)

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        twice = weight * 2
        return twice.diagonal(), twice, weight.exp()[1:], x + twice

    for results in (call, lambda x: call(x)[::2]):
        fast = hostjit.capture(results, prune=True)
        for _ in range(4):
            found, expected = fast(x), results(x)
            torch.testing.assert_close(found, expected)
            for result in (*found[:2], *expected[:2]):
                result.add_(1)
            torch.testing.assert_close(found, expected)
        assert fast.captured.pruned > 0


def test_prune_sees_writes_through_arguments() -> None:
    weight = torch.ones(3)
    fast = hostjit.capture(lambda x: x.mul_(2).sum() + weight.exp().sum(), prune=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(8):
            weight.fill_(1)
            x = weight.data if number % 3 == 2 else randn(3)
            expected = (x * 2).sum() + (weight * (2 if number % 3 == 2 else 1)).exp().sum()
            assert_close(fast(x), expected)


def test_prune_leaves_what_launches_write() -> None:
    text = """define void @increase(ptr %y) {
      %v = load float, ptr %y
      %s = fadd float %v, 1.0
      store float %s, ptr %y
      ret void
    }"""
    kernel = hostjit.kernel(text, "increase", language="llvm_ir", writes=[0])
    weight = randn(3)

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        table, copy = (weight * 2).exp(), weight.clone()
        hostjit.launch(kernel, 1, (table,))
        hostjit.launch(kernel, 1, (copy,))
        return x + table, x + copy, weight.sum()

    fast = check(call, [(randn(3),) for _ in range(5)], prune=True)
    assert fast.captured.pruned > 0


def test_prune_sees_replaced_memory() -> None:
    layer = nn.Linear(3, 3)
    fast = hostjit.capture(lambda x: x * layer.weight.exp().sum(0), prune=True)
    with torch.no_grad():
        for number in range(8):
            if number == 4:
                layer.weight.data = randn(3, 3)
            if number == 5:
                layer.weight = nn.Parameter(randn(3, 3))
            if number == 6:
                layer.weight.zero_()
            x = randn(3)
            assert_close(fast(x), x * layer.weight.exp().sum(0))
    assert fast.captured.pruned


def test_reuse_outputs() -> None:
    fast = hostjit.capture(lambda x: x * 2, reuse_outputs=True)
    results = [fast(torch.full((3,), float(i))) for i in range(6)]
    assert results[-1].data_ptr() == results[-2].data_ptr()
    assert_close(results[-1], torch.full((3,), 10.0))


def test_copies_record_anew() -> None:
    fast = hostjit.capture(nn.Linear(3, 3), on_read="raise")
    with torch.no_grad():
        for twin in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            for _ in range(3):
                x = randn(2, 3)
                assert_close(twin(x), fast(x))
            assert twin.captured is not None
            assert twin.owner.options.on_read == "raise"


def test_threads() -> None:
    fast = hostjit.capture(lambda x: (x * 2).exp())
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            for number in range(50):
                x = torch.randn(3 + number % 2, generator=generator)
                assert_close(fast(x), (x * 2).exp())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert fast.captured is not None


def test_a_function_that_calls_itself() -> None:
    @hostjit.capture
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else power(x, n - 1) * x

    for _ in range(4):
        x = randn(3)
        assert_close(power(x, 3), x**4)


def test_profile_and_limit() -> None:
    fast = hostjit.capture(lambda x: x * 2)
    for size in range(1, 4):
        fast(randn(size))
    assert "launch_kernel" in str(fast.profile(randn(2)))

    def meet_sizes() -> None:
        for size in range(1, 20):
            x = randn(size)
            assert_close(fast(x), x * 2)

    with pytest.warns(UserWarning, match="keeps meeting new calls"):
        meet_sizes()


def test_a_loss_that_is_returned() -> None:
    # Each call has another one, which no recording compares.
    model, twin = nn.Linear(4, 1), nn.Linear(4, 1)
    twin.load_state_dict(model.state_dict())

    def make(net: nn.Module) -> Any:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> float:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    fast, eager = hostjit.capture(make(model)), make(twin)

    def train(steps: int) -> None:
        for _ in range(steps):
            x = torch.randn(3, 4)
            assert_close(fast(x), eager(x))

    train(8)
    assert len(fast.specializations) == 1
    with torch.autocast("cpu", enabled=False), torch.random.fork_rng():
        train(2)
    assert_close(list(model.parameters()), list(twin.parameters()))


def test_calls_that_are_never_replayed_are_not_recorded_for_ever() -> None:
    fast = hostjit.capture(lambda x, k: x[x > k])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(60):
            x = randn(3)
            assert_close(fast(x, number / 60), x[x > number / 60])
    assert len(fast.specializations) < 20


def test_errors_that_the_code_handles() -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return x * 2

    fast = hostjit.capture(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (-torch.eye(3), -torch.eye(3), torch.eye(3) * 4, -torch.eye(3)):
            assert_close(fast(x), call(x))


def test_fallback_false() -> None:
    fast = hostjit.capture(lambda x: x.numpy().sum(), fallback=False, warmup=0)
    with pytest.raises(hostjit.CaptureError):
        fast(randn(3))


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_many_sizes_that_depend_on_values(runtime: str) -> None:
    fast = hostjit.capture(lambda x, mask: x[mask].exp() + 1, runtime=runtime)

    def meet_sizes() -> None:
        for count in (*range(1, 14), 1, 12, 2, 13):
            x, mask = randn(20), torch.arange(20) < count
            found = fast(x, mask)
            assert found.shape == (count,)
            assert_close(found, x[mask].exp() + 1)

    with pytest.warns(UserWarning, match="hostjit.compile answers all calls"):
        meet_sizes()
    assert len(fast.specializations) == 1


def test_a_float_that_differs_at_every_call() -> None:
    def control(x: torch.Tensor, *, dt: float, mode: int) -> torch.Tensor:
        return (x * dt).tanh() + mode

    fast = hostjit.capture(control)

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            x = randn(3)
            assert_close(fast(x, dt=number / 7, mode=1), (x * (number / 7)).tanh() + 1)

    run(0, 2)
    assert fast.captured is not None
    with pytest.warns(UserWarning, match="new values of the float kwargs.*dt.* hostjit.compile"):
        run(2, 3)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="hostjit")
        run(3, 40)
    assert len(fast.specializations) == 1


def test_few_values_of_a_float_and_all_ints_are_recorded() -> None:
    fast = hostjit.capture(lambda x, dt, mode: x * dt + mode)
    for dt, mode in ((0.1, 0), (0.1, 1), (0.2, 2), (0.2, 3), (0.1, 3)):
        for _ in range(2):
            x = randn(3)
            assert_close(fast(x, dt, mode), x * dt + mode)
    assert len(fast.specializations) == 5


def test_reading_sizes_is_an_error_where_reading_is() -> None:
    fast = hostjit.capture(lambda x: x[x > 0], on_read="raise", warmup=0)
    with pytest.raises(hostjit.CaptureError, match=r"aten.index.Tensor reads data"):
        fast(randn(3))


def test_an_object_that_differs_at_each_call_is_said() -> None:
    class State:
        def __init__(self, position: torch.Tensor) -> None:
            self.position = position

    fast = hostjit.capture(lambda state: State(state.position + 1))

    def call_often() -> None:
        kept = [State(torch.zeros(1))]
        for number in range(80):
            kept.append(fast(kept[-1]))
            assert float(kept[-1].position) == number + 1

    with pytest.warns(UserWarning, match="was called with 64 different objects"):
        call_often()
