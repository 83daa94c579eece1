# SPDX-License-Identifier: Apache-2.0
"""Numbers that recorded code reads of tensors, and compares, computes with or returns."""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hostjit
from hostjit.bytecode.uses import uses_of_result
from hostjit.recording.replays.replay import Replay

CALLS = [
    *([0.75, -2.0, 3.5], [0.75, -2.0, 3.5], [1.25, -2.0, 3.0], [0.5, 4.0, -1.0]),
    *([8.0, 0.0, 0.125], [0.1, 0.2, 0.3], [0.3, 0.1, 0.7], [float("nan"), 1.0, 2.0]),
    *([float("inf"), 1.0, 0.5], [-0.0, 0.0, 2.0], [1e300, 3.0, 0.5], [7.0, 7.0, 7.0]),
]
LIMIT = 1.0


def a_while_loop(x: Tensor) -> Any:
    y = x
    count = 0
    while y[0].item() < 5 and count < 4:
        y, count = y * 2 + 1, count + 1
    return y, count


def a_loop_that_settles(x: Tensor) -> Any:
    last = float("inf")
    for _ in range(4):
        now = x[2].item()
        if abs(last - now) < 0.25:
            break
        last = now
        x = x * 0.5
    return x


def the_best_of_several(x: Tensor) -> Any:
    best, at = None, -1
    for i in range(3):
        value = x[i].item()
        if best is None or value > best:
            best, at = value, i
    return x * 2, best, at


def least_and_greatest(x: Tensor) -> Any:
    least = min(x[0].item(), x[1].item(), 0.5)
    return [x + 1, max(least, x[2].item()), {"least": least}]


def computed(x: Tensor) -> Any:
    a, b = x[0].item(), x[1].item()
    return a * 3 + b - 0.1, -a, abs(b), 2 - a, 0.3 * b, a / 3, 1 + a


def divided(x: Tensor) -> Any:
    a, b = x[0].item(), x[1].item()
    try:
        return a / b, 1 / a, x
    except ZeroDivisionError:
        return x - 1


def chained(x: Tensor) -> Any:
    return x + 1 if -1 < x[0].item() <= 1 != 3 else x - 1


def assigned_in_a_test(x: Tensor) -> Any:
    if (first := x[0].item()) > 1:
        return x * 2, first
    return x, first


def whether_it_is_zero(x: Tensor) -> Any:
    a = x[1].item()
    return (x + 1 if a else x - 1), not a, (a or 0.5)


def two_numbers(x: Tensor) -> Any:
    a, b = x[0].item(), x[1].item()
    return x + (a == b) + 2 * (a != b) + 4 * (a >= b)


def other_numbers(x: Tensor) -> Any:
    a = x[0].item()
    tests = a > True, a == 2**60, a < np.float32(3), np.float64(2) > a, a == "a", a is None
    return x, [bool(test) for test in tests]


def of_ints(x: Tensor) -> Any:
    place = x.nan_to_num(0).argmax().item()
    y = x * 2 if place > 1 else x
    return y, place, place == 2**70, place < 0.5


def with_tensors(x: Tensor) -> Any:
    a = x[0].item()
    return x * a, a * x, x + a, a - x, x - a, a / (x.abs() + 1), x / (abs(a) + 1.5)


def tensors_compared(x: Tensor) -> Any:
    mean = x.mean().item()
    return (x > mean) | (mean / 2 >= x.abs()), x[0] == mean


def with_tensors_of_ints(x: Tensor) -> Any:
    n = torch.tensor([1, 2, 3])
    return n * x[0].item(), x[1].item() + n, n.half() * x[2].item()


def tensor_written(x: Tensor) -> Any:
    a = x[0].item()
    y = x * 2
    z = y
    y += a
    y *= 2 - a
    return y, z


def read_before_a_write(x: Tensor) -> Any:
    y = x * 1
    a = y[0].item()
    y[0] = 3
    return y, a, a > 1


def formatted(x: Tensor) -> Any:
    a = x[0].item()
    return x, (f"{a:.2f}" if a > 1 else "")


def other_operators(x: Tensor) -> Any:
    a = x[0].item()
    return (x, a**2, 7 % (a * a + 1), a // 2) if 0 < a < 100 else x


def converted(x: Tensor) -> Any:
    a = x[2].item()
    return (x, int(a), round(a, 1), str(a), float(a)) if a == a else x


def narrow_floats(x: Tensor) -> Any:
    a, b = x.bfloat16()[0].item(), x.double()[1].item()
    return (x + 1 if a > b else x), a, b


def with_a_gradient(x: Tensor) -> Any:
    y = (x * 2).requires_grad_()
    loss = (y * y[0].item()).sum()
    loss.backward()
    return y.grad


def within_a_context(x: Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
        return y, y[0].item()


@torch.no_grad()
def decorated(x: Tensor) -> Any:
    return x * 2, (x * 2)[0].item()


def nested(x: Tensor) -> Any:
    return {"x": x, "first": (x[0].item(), [x[1].item(), x])}


KEPT = [
    *(a_while_loop, a_loop_that_settles, the_best_of_several, least_and_greatest, computed),
    *(chained, assigned_in_a_test, whether_it_is_zero, two_numbers, of_ints),
    *(
        with_tensors,
        tensors_compared,
        read_before_a_write,
        narrow_floats,
        with_a_gradient,
        within_a_context,
    ),
    *(decorated, nested),
]
READ = [
    divided,
    other_numbers,
    with_tensors_of_ints,
    tensor_written,
    formatted,
    other_operators,
    converted,
]


class Meter:
    """What sums what it is given, and sees it."""

    def __init__(self) -> None:
        self.kinds: list[type] = []
        self.sum = 0.5

    def __iadd__(self, other: Any) -> Meter:
        self.kinds.append(type(other))
        self.sum += other
        return self

    def __gt__(self, other: Any) -> bool:
        self.kinds.append(type(other))
        return bool(self.sum > other)


def _sum(x: Tensor) -> float:
    return x[0].item() + 1  # type: ignore[no-any-return]


def kept_in_a_list(x: Tensor) -> Any:
    seen = []
    for i in range(3):
        seen.append(x[i].item())
    return x, sum(seen), [type(a) for a in seen]


def given_to_an_object(x: Tensor) -> Any:
    meter = Meter()
    meter += x[0].item()
    larger = meter > x[1].item()
    return x, meter.sum, meter.kinds, larger


def given_to_a_function(x: Tensor) -> Any:
    return x + math.floor(x.nan_to_num(0, 1, -1)[0].item())


def returned_by_another(x: Tensor) -> Any:
    return x, _sum(x) * 2, type(_sum(x))


def known_to_a_closure(x: Tensor) -> Any:
    a = x[0].item()
    return x, (lambda: type(a))()


def asked_for_its_class(x: Tensor) -> Any:
    a = x[0].item()
    return x, isinstance(a, float), a.is_integer()


def with_a_key(x: Tensor) -> Any:
    return x, max(0.5, x[0].item(), key=lambda a: a if isinstance(a, float) else math.inf)


def from_a_generator(x: Tensor) -> Any:
    def each() -> Iterator[Any]:
        for i in range(3):
            yield x[i].item()

    return x, [type(a) for a in each()]


def mapped(x: Tensor) -> Any:
    return x, [type(a) for a in map(Tensor.item, x)], sorted(x[:2], key=Tensor.item)


def as_a_place(x: Tensor) -> Any:
    place = x.nan_to_num(0).argmax().item()
    return x[place], [1, 2, 3][place]


SEEN = [
    *(kept_in_a_list, given_to_an_object, given_to_a_function, returned_by_another),
    *(known_to_a_closure, asked_for_its_class, with_a_key, from_a_generator, mapped, as_a_place),
]


class Model(nn.Module):
    """Returns a number."""

    def forward(self, x: Tensor) -> Any:
        y = x * 2
        return (y, y[0].item()) if y[1].item() > 0 else (x, 0.0)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a.nan_to_num(12.5), b.nan_to_num(12.5)) and a.dtype == b.dtype
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return bool(repr(a) == repr(b))


def _check(program: Callable[[Tensor], Any], function: Any) -> bool:
    """Run all calls beside eager; tell whether the recordings compare a float that was read."""
    for numbers in (*CALLS, *CALLS):
        x = torch.tensor(numbers)
        expected, found = program(x), function(x)
        assert _same(expected, found), (numbers, expected, found)
    replays = list(map(Replay.behind, function.specializations))
    assert replays
    return any(replay is not None and replay.reads_floats for replay in replays)


@pytest.fixture
def many_recordings() -> Iterator[None]:
    with hostjit.knobs(disable="recompile_limit"):
        yield


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("program", KEPT)
@pytest.mark.usefixtures("many_recordings")
def test_only_decisions_are_compared(program: Any, runtime: str) -> None:
    assert not _check(program, hostjit.capture(program, runtime=runtime))


@pytest.mark.parametrize("program", READ)
@pytest.mark.usefixtures("many_recordings")
def test_what_reads_the_number_compares_it(program: Any) -> None:
    assert _check(program, hostjit.capture(program))


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("program", SEEN)
def test_others_see_numbers(program: Any) -> None:
    function = hostjit.capture(program)
    for numbers in (*CALLS, *CALLS):
        x = torch.tensor(numbers)
        assert _same(program(x), function(x)), numbers


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("program", [*KEPT, *READ])
def test_compiled_as_eager(program: Any) -> None:
    function = hostjit.compile(program)
    for numbers in (*CALLS, *CALLS):
        x = torch.tensor(numbers)
        assert _same(program(x), function(x)), numbers


@pytest.mark.usefixtures("many_recordings")
def test_modules_return_numbers() -> None:
    model = Model()
    assert not _check(model, hostjit.capture(model))
    model.register_forward_hook(lambda module, args, result: (*result, type(result[1])))
    _check(model, hostjit.capture(model))


def test_another_function_of_a_name_is_given_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Any:
        return x, abs(x[0].item())

    monkeypatch.setitem(program.__globals__, "abs", type)
    function = hostjit.capture(program)
    for numbers in CALLS:
        assert function(torch.tensor(numbers))[1] is float


def test_reading_raises_where_that_is_wanted() -> None:
    function = hostjit.capture(a_while_loop, on_read="raise")
    function(torch.tensor(CALLS[0]))
    with pytest.raises(hostjit.CaptureError, match=r"\.item\(\) reads data"):
        function(torch.tensor(CALLS[0]))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_solvers_have_a_recording_for_each_number_of_steps() -> None:
    def solve(a: Tensor, b: Tensor) -> Any:
        x, r = torch.zeros_like(b), b
        p, square, steps = r, r.dot(r).item(), 0
        while math.inf > square > 1e-6 and steps < 20:
            q = a @ p
            alpha = square / p.dot(q).item()
            x, r = x + alpha * p, r - alpha * q
            now = r.dot(r).item()
            p, square, steps = r + (now / square) * p, now, steps + 1
        return x, square, steps

    torch.manual_seed(0)
    root = torch.randn(6, 6)
    a = root @ root.T / 6 + torch.eye(6)
    function = hostjit.compile(solve)
    met = set()
    for _ in range(30):
        b = torch.randn(6)
        x, square, _ = function(a, b)
        met.add(solve(a, b)[2])
        torch.testing.assert_close(a @ x, b, atol=1e-2, rtol=1e-2)
        assert type(square) is float
    assert len(met) < 8


@pytest.mark.parametrize(
    ("function", "is_kept", "builtins"),
    [
        (lambda x: x.item() > 1, True, set()),
        (lambda x: abs(x.item()) > 1, True, {"abs"}),
        (lambda x: print(x.item()), True, {"print"}),
        (lambda x: print(x.item(), end=""), False, None),
        (lambda x: x.item(), True, set()),
        (lambda x: [x.item()], True, set()),
        (lambda x: {"a": x.item()}, True, set()),
        (lambda x: {x.item(): "a"}, False, None),
        (lambda x: {x.item()}, False, None),
        (lambda x: [x.item()][0], False, None),
        (lambda x: [x.item(), 1][1], False, None),
        (lambda x: x.item().real, False, None),
        (lambda x: x[x.item()], False, None),
        (lambda x: x.item() in (1, 2), False, None),
        (lambda x: x(x.item()), False, None),
        (lambda x: lambda: x.item(), False, None),
    ],
)
def test_uses(function: Any, is_kept: bool, builtins: set[str] | None) -> None:
    code = function.__code__
    found = [uses_of_result(code, each.offset) for each in dis.get_instructions(code)]
    known = [uses.builtins for uses in found if uses is not None]
    assert bool(known) == is_kept
    assert all(names == builtins for names in known)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.float32])
def test_numbers_beside_tensors_of_other_dtypes(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        n, k = x.sum().item(), x.long().sum().item()
        return x.to(dtype) > n, x[0].to(dtype) == k, n <= x[1].long()

    recorded = hostjit.capture(program)
    for scale in (1.0, 1.0, 2.0, -1.0, 1.0):
        x = scale * torch.tensor([1.0, 0.0, 2.0])
        torch.testing.assert_close(recorded(x), program(x))
