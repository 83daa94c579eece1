# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="hostjit") without gradients: results, aliases, writes, numbers, shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from beside_eager import check
from no_warnings import no_warnings
from torch import Tensor, nn
from torch._higher_order_ops import while_loop
from torch.nn import functional as F

from hostjit import _C


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def views_and_constants(x: Tensor) -> tuple[Any, ...]:
    return x.t(), x, x.view(-1), x[1:], None, 3, x.shape[0], "text"


def twice_the_same(x: Tensor) -> list[Any]:
    y = x + 1
    return [y, y, {"first": y[0]}, (y,)]


def nothing(x: Tensor) -> None:
    return None


def writes_and_returns_nothing(x: Tensor) -> None:
    x.mul_(2)


def writes_through_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    row.add_(1)
    return row, x


def writes_and_uses(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def writes_out(x: Tensor, out: Tensor) -> Tensor:
    torch.add(x, 1, out=out)
    return out


def draws_random_numbers(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5) + torch.rand_like(x) + torch.randn(3).sum()


def autocasts(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


def transforms(x: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(lambda row: (row.sin() * 2).sum()))(x)


@pytest.mark.parametrize(
    "function",
    [
        views_and_constants,
        twice_the_same,
        nothing,
        writes_and_returns_nothing,
        writes_through_a_view,
        writes_and_uses,
        draws_random_numbers,
        autocasts,
        transforms,
    ],
)
def test_function_of_one_tensor(function: Callable[..., Any], runtime: str) -> None:
    check(function, (torch.randn(3, 4),), runtime=runtime, fullgraph=True)


def test_a_result_written_into_a_given_tensor(runtime: str) -> None:
    check(writes_out, (torch.randn(3), torch.randn(3)), runtime=runtime)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.features(x))).mean((2, 3)))


@pytest.mark.parametrize("training", [False, True])
def test_module_and_its_buffers(training: bool, runtime: str) -> None:
    module = Classifier().train(training)
    call = (module, torch.randn(2, 3, 8, 8))
    check(lambda module, x: module(x), call, runtime=runtime)


def test_a_parameter_that_changed_is_seen() -> None:
    module = nn.Linear(4, 2)
    compiled = torch.compile(module, backend="hostjit")
    x = torch.randn(3, 4)
    compiled(x)
    module.weight.mul_(2)
    torch.testing.assert_close(compiled(x), module(x))
    module.weight = nn.Parameter(torch.randn(2, 4))
    torch.testing.assert_close(compiled(x), module(x))
    module.load_state_dict({"weight": torch.ones(2, 4), "bias": torch.ones(2)})
    torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change(dynamic: bool | None, runtime: str) -> None:
    def function(x: Tensor) -> tuple[Any, ...]:
        rows = x.shape[0]
        return x + rows, rows * 2, x.reshape(rows, 2, 2), x.sum(1) / (rows + 1)

    calls = [(torch.randn(rows, 4),) for rows in (3, 5, 6, 5, 3, 1, 0)]
    check(function, *calls, runtime=runtime, dynamic=dynamic)


def test_numbers_and_dtypes_that_change(runtime: str) -> None:
    def function(x: Tensor, number: float) -> Tensor:
        return x * number + number

    x = torch.randn(3)
    calls = [(x, number) for number in (0.5, 0.6, 0.7, 1e-8, 3, 4, 5, True)]
    check(function, *calls, (x.double(), 0.5), (torch.arange(3), 2), runtime=runtime)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_floats_that_change_with_an_alpha(dtype: torch.dtype, runtime: str) -> None:
    def function(x: Tensor, number: float) -> tuple[Tensor, ...]:
        written = x.to(torch.result_type(x, number)).add_(number, alpha=2)
        return torch.add(x, number, alpha=3), torch.sub(x, number, alpha=number), written

    for x in (torch.arange(3).to(dtype), torch.tensor(5).to(dtype)):
        check(function, *((x, number) for number in (0.5, 2.5, -3.1, 1e-8)), runtime=runtime)


def test_regions_that_read_a_size_that_changes(runtime: str) -> None:
    def function(x: Tensor) -> tuple[Any, ...]:
        def step(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, y * 1.5 + x.shape[0]

        chosen = torch.cond(x.sum() > 0, lambda x: x * x.shape[0], lambda x: x - x.shape[0], (x,))
        return chosen, while_loop(lambda i, y: i < x.shape[0], step, (torch.tensor(0), x + 0))[1]

    calls = [(sign * torch.rand(rows, 2),) for rows in (3, 4, 5) for sign in (1, -1)]
    check(function, *calls, runtime=runtime)


def test_graph_break(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        y = x + 1
        if y.sum() > 0:
            return y * 2
        return y - 1

    check(function, (torch.ones(3),), (-torch.ones(3) * 5,), (torch.ones(4),), runtime=runtime)
    compiled = torch.compile(function, backend="hostjit", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(torch.ones(3))


def test_inference_mode(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2

    compiled = torch.compile(function, backend="hostjit", options={"runtime": runtime})
    x = torch.randn(3)
    assert not compiled(x).is_inference()
    with torch.inference_mode():
        assert compiled(x).is_inference()
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert not compiled(x).is_inference()


def test_compiled_inside_of_compiled(runtime: str) -> None:
    inner = torch.compile(torch.sin, backend="hostjit", options={"runtime": runtime})
    check(lambda x: inner(x) * 2, (torch.randn(3),), runtime=runtime)


@pytest.mark.parametrize("function", [torch.fft.ifft, lambda x: x.cfloat().conj().imag])
def test_lazy_results_stay_lazy(function: Callable[..., Any]) -> None:
    x = torch.randn(4, 3)
    with pytest.warns(UserWarning, match="conjugated or negated lazily"):
        found = torch.compile(function, backend="hostjit")(x)
    expected = function(x)
    assert (found.is_conj(), found.is_neg()) == (expected.is_conj(), expected.is_neg())
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: torch.addcdiv(x, y, z, value=0.3),
        lambda x, y, z: x.clone().addcdiv_(y, z, value=0.3),
        lambda x, y, z: x.clone().addcmul_(y, z, value=0.3),
    ],
    ids=["addcdiv", "addcdiv_", "addcmul_"],
)
def test_operators_that_dynamo_takes_apart_stay_whole(function: Callable[..., Tensor]) -> None:
    inputs = [torch.randn(512, dtype=torch.bfloat16) for _ in range(3)]
    compiled = torch.compile(function, backend="hostjit")
    assert torch.equal(compiled(*inputs), function(*inputs))
    other = torch.compile(function, backend="aot_eager")
    assert not torch.equal(other(*inputs), function(*inputs)), "Dynamo keeps it whole: delete this"


def test_errors_are_those_of_eager() -> None:
    compiled = torch.compile(lambda x, i: x[i] + 1, backend="hostjit")
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(torch.randn(3), torch.tensor([5]))


def test_inputs_that_share_memory_run_eagerly_once_one_is_written(runtime: str) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    base = torch.randn(8)
    apart = (torch.randn(4), torch.randn(4))
    overlapping = (base[:4], base[2:6])
    with pytest.warns(UserWarning, match="two inputs share memory"):
        check(function, apart, overlapping, apart, runtime=runtime, may_fall_back=True)


def test_one_program_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    original = _C.CompiledProgram

    def record(program: _C.Program) -> _C.CompiledProgram:
        made.append(program)
        return original(program)

    monkeypatch.setattr(_C, "CompiledProgram", record)

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.softmax(-1), y]) * x.shape[0] + torch.arange(x.shape[1])

    fast = torch.compile(function, backend="hostjit", dynamic=True)
    with torch.no_grad():
        for n, m in (
            (3, 4),
            (5, 6),
            (2, 9),
            (7, 7),
            (20, 2),
            (4, 3),
            (6, 8),
            (9, 4),
            (8, 8),
            (2, 2),
        ):
            x, y = torch.randn(n, m), torch.randn(n + 1, m)
            torch.testing.assert_close(fast(x, y), function(x, y))
    assert len(made) <= 2


def test_writes_at_a_position_with_open_lengths(runtime: str) -> None:
    def fill(cache: torch.Tensor, x: torch.Tensor, p: int) -> torch.Tensor:
        cache[:, p : p + x.shape[1]] = x
        return cache.sum(1)

    places = [
        (2, 4),
        (6, 3),
        (9, 5),
        (0, 6),
        (14, 2),
        (3, 3),
        (30, 2),
        (16, 7),
        (5, 4),
        (8, 9),
        (1, 2),
    ]
    check_any(fill, [(torch.randn(2, n, 8), p) for p, n in places], torch.zeros(2, 32, 8), runtime)


def test_a_counter_that_may_be_negative(runtime: str) -> None:
    def decay(state: torch.Tensor, x: torch.Tensor, step: int) -> torch.Tensor:
        state += x * step
        return state - step

    steps = (-5, 3, -2, 7, -9, 11, -20, 0, 1, 30, 1 << 29, -(1 << 29))
    check_any(decay, [(torch.randn(3), step) for step in steps], torch.zeros(3), runtime)


def test_a_counter_that_outgrows_its_program(runtime: str) -> None:
    def scale(state: torch.Tensor, x: torch.Tensor, step: int) -> torch.Tensor:
        state += x
        return state.to(torch.int64) * step

    steps = (3, 5, 1 << 40, 9, 1 << 50, 4)
    check_any(scale, [(torch.randn(3), step) for step in steps], torch.zeros(3), runtime)


def test_a_method_of_an_int_that_specializes_it(runtime: str) -> None:
    def scale(state: torch.Tensor, x: torch.Tensor, step: int) -> torch.Tensor:
        state += x * step.bit_length()
        return state * 2

    check_any(scale, [(torch.randn(3), step) for step in (3, 4, 19, 5)], torch.zeros(3), runtime)


def test_a_mask_as_long_as_the_keys_that_it_is_for(runtime: str) -> None:
    """Dynamo has a symbol for each of the two lengths, and leaves it open whether they are one."""
    options = {"runtime": runtime}
    attend = torch.nn.functional.scaled_dot_product_attention

    def function(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return attend(q, k, k, attn_mask=mask)

    compiled = torch.compile(function, backend="hostjit", options=options)
    apart = torch.fx.experimental._config.patch(use_duck_shape=False)
    with torch.no_grad(), apart:
        for keys, length in ((5, 5), (6, 6), (7, 7), (9, 9), (11, 11), (6, 1), (7, 7)):
            q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, keys, 8)
            mask = torch.randn(1, 1, 1, length)
            torch.testing.assert_close(compiled(q, k, mask), function(q, k, mask))
        with pytest.raises(RuntimeError, match="size"):
            compiled(q, k, mask[..., :3])


def check_any(
    function: Callable[..., Any], calls: list[tuple[Any, ...]], state: torch.Tensor, runtime: str
) -> None:
    """Compare calls that write `state` with eager's; a program for each of them is an error."""
    ours, theirs = state.clone(), state.clone()
    options = {"runtime": runtime}
    compiled = torch.compile(function, backend="hostjit", dynamic=True, options=options)
    with torch.no_grad(), no_warnings():
        for call in calls:
            torch.testing.assert_close(compiled(ours, *call), function(theirs, *call))
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("first", [0, 1, 4])
def test_a_position_that_is_a_known_size_in_the_first_call(runtime: str, first: int) -> None:
    def fill(x: torch.Tensor, start: int, cache: torch.Tensor) -> torch.Tensor:
        cache[:, start : start + x.shape[1]] = x
        return cache[:, : start + x.shape[1]] * 2

    def part(x: torch.Tensor, start: int, cache: torch.Tensor) -> torch.Tensor:
        return cache[:, start : start + x.shape[1]]

    places = ((3, first), (1, 3), (1, 4), (2, 5), (1, 7), (3, 0))
    calls = [(torch.randn(2, n, 4), p, torch.randn(2, 16, 4)) for n, p in places]
    with torch.no_grad():
        for function in (fill, part):
            torch._dynamo.reset()
            check(function, *calls, runtime=runtime, dynamic=True)
