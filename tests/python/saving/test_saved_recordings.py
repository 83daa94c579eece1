# SPDX-License-Identifier: Apache-2.0
"""Files of what `hostjit.capture` recorded."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import hostjit


def test_a_recording(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    @hostjit.capture(fallback=False)
    def step(x: torch.Tensor, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        state["h"].mul_(0.5).add_(model(x))
        return {"h": state["h"], "y": state["h"].relu()}

    x = torch.randn(1, 3)
    for _ in range(3):
        step(x, {"h": torch.randn(1, 2)})
    hostjit.save(step, tmp_path / "step.hostjit")
    loaded = hostjit.load(tmp_path / "step.hostjit")
    h = torch.randn(1, 2)
    state, expected = {"h": h.clone()}, h * 0.5 + model(x)
    found = loaded(x, state)
    assert found["h"] is state["h"]
    torch.testing.assert_close(found, {"h": expected, "y": expected.relu()})
    with pytest.raises(hostjit.Error, match="no program for this"):
        loaded(torch.randn(2, 3), state)


def _recorded(target: Any, *calls: Any, **options: Any) -> Any:
    captured = hostjit.capture(target, fallback=False, **options)
    for args in calls:
        captured(*args)
    return captured


def test_values_that_were_read_are_compared(tmp_path: Path) -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if bool(x.sum() > 0) else x - 1

    x = torch.ones(3)
    captured = _recorded(branch, (x,), (x,))
    hostjit.save(captured, tmp_path / "branch.hostjit")
    loaded = hostjit.load(tmp_path / "branch.hostjit")
    torch.testing.assert_close(loaded(3 * x), 6 * x)
    with pytest.raises(hostjit.MismatchError) as caught:
        loaded(-x)
    line = r"a value read at .*test_saved_recordings\.py:\d+"
    text = rf"where {line} is True \(but {line}: expected True, found False\)"
    assert re.search(text, str(caught.value))
    # A target answers what was not recorded.
    by_target = hostjit.load(tmp_path / "branch.hostjit", target=hostjit.capture(branch))
    for sign in (1, -1, -1, -1, 1):
        torch.testing.assert_close(by_target(sign * x), branch(sign * x))
    assert len(by_target.specializations) == 2
    # Another recording for the other values.
    captured(-x)
    hostjit.save(captured, tmp_path / "branch.hostjit")
    loaded = hostjit.load(tmp_path / "branch.hostjit")
    assert len(loaded.signatures) == 2
    for sign in (1, -1, 1):
        torch.testing.assert_close(loaded(sign * x), branch(sign * x))
    hostjit.save(loaded, tmp_path / "again.hostjit")
    torch.testing.assert_close(hostjit.load(tmp_path / "again.hostjit")(-x), branch(-x))


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_reading_random_numbers_draws_none(runtime: str, tmp_path: Path) -> None:
    def lucky(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(3)
        return x + noise if noise.sum() > 0 else x

    captured = _recorded(lucky, *[(torch.ones(3),)] * 2, runtime=runtime)
    hostjit.save(captured, tmp_path / "lucky.hostjit")
    loaded = hostjit.load(tmp_path / "lucky.hostjit")
    torch.manual_seed(3)
    expected = [lucky(torch.ones(3)) for _ in range(3)]
    after = torch.get_rng_state()
    torch.manual_seed(3)
    for one in expected:
        torch.testing.assert_close(loaded(torch.ones(3)), one)
    assert torch.equal(torch.get_rng_state(), after)


def test_static_inputs_are_where_the_first_call_has_them(tmp_path: Path) -> None:
    x = torch.ones(3)
    captured = _recorded(lambda x: x * 2, (x,), (x,), static_inputs=["x"])
    hostjit.save(captured, tmp_path / "double.hostjit")
    loaded = hostjit.load(tmp_path / "double.hostjit")
    y = torch.full((3,), 4.0)
    for _ in range(2):
        torch.testing.assert_close(loaded(y), 2 * y)
    with pytest.raises(hostjit.MismatchError, match="tensor 0 of the arguments is where the first"):
        loaded(y.clone())
    torch.testing.assert_close(loaded(y), 2 * y)


def test_whether_there_are_gradients_is_compared(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)

    def accumulate(x: torch.Tensor) -> None:
        model(x).sum().backward()

    x = torch.randn(4, 3)
    with torch.enable_grad():
        captured = _recorded(accumulate, (x,), (x,), warmup=0)
        hostjit.save(captured, tmp_path / "accumulate.hostjit")
        loaded = hostjit.load(tmp_path / "accumulate.hostjit")
        assert len(loaded.signatures) == 2  # with gradients, and without
        weight = loaded.parameters["model.weight"]
        assert weight.grad is not model.weight.grad
        for _ in range(3):
            captured(x)
            loaded(x)
            torch.testing.assert_close(weight.grad, model.weight.grad, rtol=0, atol=0)
        for parameter in (*loaded.parameters.values(), *model.parameters()):
            parameter.grad = None
        for _ in range(2):
            captured(x)
            loaded(x)
            torch.testing.assert_close(weight.grad, model.weight.grad, rtol=0, atol=0)
        weight.grad = None  # and the bias has one
        with pytest.raises(hostjit.MismatchError, match=r"\(but 'model.weight' has no gradient\)"):
            loaded(x)
        # Parameters that are given have gradients of their own.
        given = nn.Linear(3, 2)
        loaded = hostjit.load(tmp_path / "accumulate.hostjit", parameters={"model": given})
        assert given.weight.grad is None
        for _ in range(2):
            loaded(x)
        torch.testing.assert_close(given.bias.grad, torch.full((2,), 8.0))


def test_gradients_of_arguments_are_compared(tmp_path: Path) -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        x.square().sum().backward()
        return x.grad * 2

    def leaf() -> torch.Tensor:
        return torch.arange(3.0).requires_grad_()

    with torch.enable_grad():
        captured = _recorded(gradient, (leaf(),), (leaf(),))
        hostjit.save(captured, tmp_path / "gradient.hostjit")
        loaded = hostjit.load(tmp_path / "gradient.hostjit")
        x = leaf()
        torch.testing.assert_close(loaded(x), 4 * torch.arange(3.0))
        torch.testing.assert_close(x.grad, 2 * torch.arange(3.0))
        with pytest.raises(
            hostjit.MismatchError,
            match=r"tensor 0 of the arguments: \.grad expected None",
        ):
            loaded(x)


def test_what_runs_once_follows_what_it_was_computed_of(tmp_path: Path) -> None:
    weight = torch.ones(3)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * weight.exp().sum()

    x = torch.randn(3)
    captured = _recorded(scaled, (x,), (x,), prune=True)
    assert captured.captured.pruned == 2
    hostjit.save(captured, tmp_path / "scaled.hostjit")
    loaded = hostjit.load(tmp_path / "scaled.hostjit")
    torch.testing.assert_close(loaded(x), scaled(x))
    for tensor in (weight, loaded.parameters["weight"]):
        tensor.mul_(0.5)
    torch.testing.assert_close(loaded(x), scaled(x))
    given = torch.zeros(3)
    loaded = hostjit.load(tmp_path / "scaled.hostjit", parameters={"weight": given})
    for _ in range(2):
        torch.testing.assert_close(loaded(x), 3 * x)
    given.add_(1)
    torch.testing.assert_close(loaded(x), 3 * x * math.e)
    weight.mul_(0.5)  # and no call since
    hostjit.save(captured, tmp_path / "scaled.hostjit")
    torch.testing.assert_close(hostjit.load(tmp_path / "scaled.hostjit")(x), scaled(x))


def test_arguments_that_are_written_and_read_once(tmp_path: Path) -> None:
    weight = torch.ones(3)

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(weight.exp().sum())

    captured = _recorded(scale, *[(torch.randn(3),) for _ in range(2)], prune=True)
    hostjit.save(captured, tmp_path / "scale.hostjit")
    loaded = hostjit.load(tmp_path / "scale.hostjit")
    x = torch.ones(3)
    torch.testing.assert_close(loaded(x.clone()), scale(x.clone()))
    with pytest.raises(hostjit.MismatchError, match="writes to memory that is read only once"):
        loaded(loaded.parameters["weight"][:])


class Slotted:
    __slots__ = ("gain",)


def test_state_that_is_compared_at_every_call_is_saved(tmp_path: Path) -> None:
    slotted = Slotted()
    slotted.gain = 3.0
    captured = _recorded(lambda x: x * slotted.gain, *[(torch.ones(2),)] * 2)
    hostjit.save(captured, tmp_path / "slotted.hostjit")
    loaded = hostjit.load(tmp_path / "slotted.hostjit")
    torch.testing.assert_close(loaded(torch.ones(2)), torch.full((2,), 3.0))
    slotted.gain = 4.0
    with pytest.raises(hostjit.Error, match="something that it read is not what it was"):
        hostjit.save(captured, tmp_path / "slotted.hostjit")
    captured(torch.ones(2))
    hostjit.save(captured, tmp_path / "slotted.hostjit")
    loaded = hostjit.load(tmp_path / "slotted.hostjit")
    assert len(loaded.specializations) == 1
    torch.testing.assert_close(loaded(torch.ones(2)), torch.full((2,), 4.0))


def test_arguments_that_are_met_elsewhere(tmp_path: Path) -> None:
    weight = torch.ones(3)

    def which(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x is weight else x - 1

    captured = _recorded(which, (weight,), (weight,))
    hostjit.save(captured, tmp_path / "which.hostjit")
    loaded = hostjit.load(tmp_path / "which.hostjit")
    torch.testing.assert_close(loaded(loaded.parameters["weight"]), weight + 1)
    with pytest.raises(hostjit.MismatchError, match="no program for this call"):
        loaded(torch.ones(3))
    given = torch.zeros(3)
    loaded = hostjit.load(tmp_path / "which.hostjit", parameters={"weight": given})
    torch.testing.assert_close(loaded(given), torch.ones(3))


def test_a_replay_that_looks_again_keeps_tensors_apart() -> None:
    weight = torch.ones(3)

    def which(x: torch.Tensor) -> torch.Tensor:
        return x + weight.exp().sum() * (2 if x is weight else 3)

    captured = _recorded(which, *[(torch.ones(3),)] * 3, prune=True)
    weight.add_(1)  # what runs once is computed again, for this call if it is answered
    torch.testing.assert_close(captured(weight), which(weight))
    torch.testing.assert_close(captured(torch.ones(3)), which(torch.ones(3)))


def test_dims(tmp_path: Path) -> None:
    length = hostjit.Dim("length", 0, 9)
    cache = torch.arange(10.0)

    def total(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + cache[: n + 1].sum() * n

    captured = _recorded(total, *[(torch.ones(1), length(n)) for n in (3, 4, 5)])
    hostjit.save(captured, tmp_path / "total.hostjit")
    loaded = hostjit.load(tmp_path / "total.hostjit")
    for n in (2, 7, 9):
        expected = total(torch.ones(1), n)
        torch.testing.assert_close(loaded(torch.ones(1), length(n)), expected)
        torch.testing.assert_close(loaded(torch.ones(1), n), expected)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_dims_with_a_program_for_some_values(tmp_path: Path) -> None:
    turns = hostjit.Dim("turns", 0, 9)

    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(n):
            x = x * 1.5
        return x

    captured = _recorded(power, *[(torch.ones(1), turns(n)) for n in (3, 0, 3)])
    hostjit.save(captured, tmp_path / "power.hostjit")
    loaded = hostjit.load(tmp_path / "power.hostjit")
    for n in (0, 3, 3):
        torch.testing.assert_close(loaded(torch.ones(1), turns(n)), power(torch.ones(1), n))
    with pytest.raises(hostjit.Error, match=r"no program for this call:\n  \(float32\[1\], 2\)"):
        loaded(torch.ones(1), turns(2))
    loaded = hostjit.load(tmp_path / "power.hostjit", target=power)
    for n in (2, 2, 3, 0, 1):
        torch.testing.assert_close(loaded(torch.ones(1), turns(n)), power(torch.ones(1), n))


@pytest.mark.parametrize("operator", ["scan", "while_loop", "cond"])
def test_loops_and_branches(operator: str, tmp_path: Path) -> None:
    turns, rows = hostjit.Dim("turns", 1, 9), torch.linspace(-1, 1, 27).reshape(9, 3)

    def by_scan(x: torch.Tensor, n: int) -> Any:
        return scan(lambda x, row: (torch.tanh(x + row), x * 2), x, rows[:n])

    def by_while_loop(x: torch.Tensor, n: int) -> Any:
        first = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, _: i < n, lambda i, x: (i + 1, torch.tanh(x + i)), (first, x))

    def by_cond(x: torch.Tensor, n: int) -> Any:
        return torch.cond(x.sum() > n, lambda x: x - n, lambda x: x * n, (x,))

    loop = {"scan": by_scan, "while_loop": by_while_loop, "cond": by_cond}[operator]
    captured = _recorded(loop, *[(torch.ones(3), turns(n)) for n in (3, 4, 5)])
    hostjit.save(captured, tmp_path / "loop.hostjit")
    loaded = hostjit.load(tmp_path / "loop.hostjit")
    for n in (1, 9, 2, 3):
        for x in (torch.ones(3), torch.randn(3)):
            torch.testing.assert_close(loaded(x, turns(n)), loop(x, n))


@pytest.mark.parametrize("where", ["argument", "closure"])
def test_generators_can_t_be_saved(where: str, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)

    def of_closure(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3, generator=generator)

    def of_argument(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return x + torch.rand(3, generator=generator)

    more = () if where == "closure" else (generator,)
    captured = _recorded(
        of_closure if where == "closure" else of_argument, *[(torch.ones(3), *more)] * 3
    )
    with pytest.raises(hostjit.Error, match=r"[gG]enerator"):
        hostjit.save(captured, tmp_path / "draws.hostjit")
    assert not (tmp_path / "draws.hostjit").exists()


class Scaled:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    @hostjit.capture
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_recordings_of_one_object(tmp_path: Path) -> None:
    path = tmp_path / "scale.hostjit"
    objects = [Scaled(2.0), Scaled(3.0)]
    x = torch.randn(3)
    for each in objects * 2:
        each.scale(x)
    for each in objects:
        hostjit.save(each.scale, path)
        torch.testing.assert_close(hostjit.load(path)(x), x * each.factor)
