# SPDX-License-Identifier: Apache-2.0
"""What tinygrad gives for the rows of test_tinyjit_footguns.py, as of tinygrad 0.14.0.

A test has the name of its row. They run where tinygrad and clang are.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from tinygrad_programs import calls, of, random_of, runs, square

tinygrad = pytest.importorskip("tinygrad")
Tensor, TinyJit = tinygrad.Tensor, tinygrad.TinyJit
JitError = pytest.importorskip("tinygrad.engine.jit").JitError


def test_class_method_shared_across_instances() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = of(scale)

        @TinyJit
        def __call__(self, x: Any) -> Any:
            return x * self.scale

    first, second = Model(2), Model(3)
    assert calls(first) == [0, 2, 4, 6, 8]
    assert calls(second) == [0, 2, 4, 6, 8]


def test_slice_assign_requires_realize() -> None:
    def write(cache: Any, x: Any) -> Any:
        cache[1:2] = x
        return x * 1

    def write_and_read(cache: Any, x: Any) -> Any:
        cache[1:2] = x
        return cache * 1

    def caches(function: Callable[..., Any]) -> list[float]:
        jit, found = TinyJit(function), []
        for number in range(1, 6):
            cache = of(0, 0, 0)
            jit(cache, of(number))
            found.append(cache.tolist()[1])
        return found

    assert caches(write) == [1, 2, 0, 0, 0]
    assert caches(write_and_read) == [1, 2, 3, 4, 5]


def test_output_buffer_reuse() -> None:
    jit = TinyJit(lambda x: x * 2)
    results = [jit(of(number)) for number in range(5)]
    assert [result.item() for result in results] == [0, 8, 8, 8, 8]


def test_python_constants_frozen() -> None:
    jit = TinyJit(lambda x, k: x * k)
    assert [jit(of(10), k).item() for k in (1, 2, 3, 4)] == [10, 20, 20, 20]


def test_python_globals_frozen() -> None:
    config = SimpleNamespace(scale=0)

    def scaled(x: Any) -> Any:
        return x * config.scale

    jit, found = TinyJit(scaled), []
    for config.scale in (1, 2, 3, 4):
        found.append(jit(of(10)).item())
    assert found == [10, 20, 20, 20]


def test_conditional_branches_frozen() -> None:
    by_flag = TinyJit(lambda x, doubles: x * 2 if doubles else x - 1)
    assert [by_flag(of(5), flag).item() for flag in (True, True, False)] == [10, 10, 10]
    with pytest.raises(TypeError, match="__bool__ on Tensor"):
        TinyJit(lambda x: x * 2 if x.sum() > 0 else x - 1)(of(5))


def test_item_bakes_in_values() -> None:
    jit = TinyJit(lambda x: x * x[0].item())
    jit(of(1))
    with pytest.raises(JitError, match="cannot access tensor data during JIT capture"):
        jit(of(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.tolist()[0],
        lambda x: x * float(x.numpy()[0]),
        lambda x: x * float(f"{x[0].item():.1f}"),
        lambda x: x * 2 if (x > 0).all().item() else x,
    ],
)
def test_data_is_never_baked_in(function: Callable[..., Any]) -> None:
    jit = TinyJit(function)
    jit(of(1))
    with pytest.raises(JitError, match="cannot access tensor data during JIT capture"):
        jit(of(1))
    assert repr(of(1)) == repr(of(2))


def test_unrealized_const_input() -> None:
    for constant in (Tensor(2.0), Tensor(2.0).expand(4), Tensor.arange(3)):
        with pytest.raises(JitError, match="must be real buffers"):
            TinyJit(lambda x: x + 1)(constant)


def test_non_tensor_outputs() -> None:
    jit = TinyJit(lambda x: (x * 2, 5))
    jit(of(1))
    with pytest.raises(JitError, match="non-Tensor value of type int"):
        jit(of(1))


def test_positional_kwargs_mix() -> None:
    jit = TinyJit(lambda a, b: a - b)
    for _ in range(3):
        jit(of(1), of(2))
    with pytest.raises(JitError, match="args mismatch"):
        jit(of(1), b=of(2))


def test_kwargs_order_doesnt_matter() -> None:
    jit = TinyJit(lambda first, second: first - second)
    for _ in range(3):
        assert jit(first=of(3), second=of(1)).item() == 2
        assert jit(second=of(1), first=of(3)).item() == 2


def test_duplicate_inputs() -> None:
    x = of(1)
    with pytest.raises(JitError, match="duplicate inputs"):
        TinyJit(lambda a, b: a + b)(x, x)


def test_views_of_one_another() -> None:
    x = random_of(6)
    with pytest.raises(JitError, match="duplicate inputs"):
        TinyJit(lambda a, b: a + b)(x[:4], x[2:])


def test_views_with_different_offsets() -> None:
    jit, x = TinyJit(lambda x: x * 2), random_of(10)
    for _ in range(3):
        jit(x[:4])
    with pytest.raises(JitError, match="args mismatch"):
        jit(x[1:5])


def test_nested_jit() -> None:
    inner = TinyJit(lambda x: x * 2)
    outer = TinyJit(lambda x: inner(x) + 1)
    outer(of(1))
    with pytest.raises(RuntimeError, match="inside another TinyJit is not supported"):
        outer(of(1))
    inner.reset()
    calls(inner)
    assert calls(TinyJit(lambda x: inner(x) + 1)) == [1, 3, 3, 3, 3]


def test_implicit_inputs() -> None:
    state = {"weight": of(0)}
    jit, found = TinyJit(lambda x: x * state["weight"]), []
    for number in range(5):
        state["weight"] = of(number)
        found.append(jit(of(1)).item())
    assert found == [0, 1, 1, 1, 1]

    weight = of(0)
    realized, lazy = (TinyJit(lambda x: x * weight) for _ in range(2))
    for jit, expected in ((realized, [0, 1, 2, 3, 4]), (lazy, [0, 1, 1, 1, 1])):
        found = []
        for number in range(5):
            weight.assign(of(number))
            if jit is realized:
                weight.realize()
            found.append(jit(of(1)).item())
        assert found == expected


def test_implicit_outputs() -> None:
    state = SimpleNamespace(last=None)

    def call(x: Any) -> Any:
        state.last = x * 2
        return state.last + 1

    assert runs(TinyJit(call), lambda: state.last.item()) == [0, 2, 2, 2, 2]


def test_implicit_outputs_in_place() -> None:
    buffer = of(0)

    def add(x: Any) -> Any:
        buffer.assign(buffer + 1)
        return x * 1

    assert runs(TinyJit(add), buffer.item) == [1, 2, 2, 2, 2]
    read = TinyJit(lambda x: buffer.assign(buffer + 1).sum() + x * 0)
    assert runs(read, buffer.item) == [3, 4, 5, 6, 7]


def test_side_effects_only_during_capture() -> None:
    seen: list[int] = []

    def call(x: Any) -> Any:
        seen.append(1)
        return x * 2

    assert runs(TinyJit(call), lambda: len(seen)) == [1, 2, 2, 2, 2]


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    def call(x: Any) -> Any:
        print("called")
        return x * 2

    calls(TinyJit(call))
    assert capsys.readouterr().out == "called\n" * 2


def test_nothing_realized() -> None:
    jit = TinyJit(lambda x: None)
    jit(of(1))
    with pytest.raises(JitError, match="didn't JIT anything"):
        jit(of(1))


def test_one_dimensional_inputs_are_checked() -> None:
    jit = TinyJit(lambda x: (x * 2).sum())
    for _ in range(3):
        jit(of(*[1] * 4))
    assert jit(of(*[1] * 8)).item() == 8


def test_dicts_by_key() -> None:
    jit = TinyJit(lambda d: d["x"] - d["y"])
    for _ in range(3):
        assert jit({"x": of(10), "y": of(1)}).item() == 9
    assert jit({"y": of(1), "x": of(10)}).item() == -9


def test_nested_containers() -> None:
    jit = TinyJit(lambda xs: xs[0][0] * 1)
    assert [jit([[of(number)]]).item() for number in range(5)] == [0, 1, 1, 1, 1]


def test_returned_input() -> None:
    jit = TinyJit(lambda x: (x, x * 2))
    found = [[result.item() for result in jit(of(number))] for number in range(4)]
    assert found == [[0, 0], [1, 2], [1, 4], [1, 6]]


def test_output_fed_back() -> None:
    jit, x, found = TinyJit(lambda x: x * 2 + 1), of(1), []
    for _ in range(5):
        tinygrad.GlobalCounters.reset()
        x = jit(x)
        found.append((x.item(), tinygrad.GlobalCounters.kernel_count))
    assert [value for value, _ in found] == [3, 7, 15, 31, 63]
    assert found[3][1] > found[1][1]


def test_graph_input_output_aliasing() -> None:
    def step(token: Any, cache: Any) -> Any:
        cache.assign(cache.roll(1) + token).realize()
        return cache[:1] * 0.5

    jit, token, cache = TinyJit(step), of(1), of(0, 0, 0, 0)
    expected_token, expected = numpy.ones(1), numpy.zeros(4)
    for number in range(8):
        if number == 5:
            token, expected_token = of(1), numpy.ones(1)
        token, expected = jit(token, cache), numpy.roll(expected, 1) + expected_token
        expected_token = expected[:1] * 0.5
        assert cache.tolist() == expected.tolist() and token.tolist() == expected_token.tolist()


def test_multiple_outputs_same_intermediate() -> None:
    def call(x: Any) -> tuple[Any, ...]:
        shared = x * 2
        return shared + 1, shared - 1, shared

    jit = TinyJit(call)
    for number in range(5):
        found = [result.item() for result in jit(of(number))]
        assert found == [2 * number + 1, 2 * number - 1, 2 * number]


def test_random_regenerates() -> None:
    jit = TinyJit(lambda x: x + Tensor.rand(3))
    assert len({tuple(jit(of(0, 0, 0)).tolist()) for _ in range(6)}) == 6


def test_masked_select() -> None:
    jit = TinyJit(lambda x, mask: x.masked_select(mask))
    jit(of(1, 2, 3), Tensor([True, False, True]))
    with pytest.raises(JitError, match="cannot access tensor data"):
        jit(of(1, 2, 3), Tensor([True, False, True]))


def test_nonzero() -> None:
    jit = TinyJit(lambda x: x.nonzero())
    jit(of(1, 0, 3))
    with pytest.raises(JitError, match="cannot access tensor data"):
        jit(of(1, 0, 3))


def test_masked_select_static_size() -> None:
    jit = TinyJit(lambda x, mask: x.masked_select(mask, size=3, fill_value=-1))
    for mask in ([True, False, True], [False] * 3, [False, True, False], [True] * 3):
        chosen = [value for value, kept in zip((5, 6, 7), mask, strict=True) if kept]
        assert jit(of(5, 6, 7), Tensor(mask)).tolist() == (chosen + [-1] * 3)[:3]


def test_nonzero_static_size() -> None:
    jit = TinyJit(lambda x: x.nonzero(size=3, fill_value=-1))
    for values in ((1, 0, 3), (0, 0, 0), (0, 5, 0), (1, 2, 3)):
        places = [[place] for place, value in enumerate(values) if value]
        assert jit(of(*values)).tolist() == (places + [[-1]] * 3)[:3]


def test_symbolic_pad_view_frozen() -> None:
    jit = TinyJit(lambda x: (x + 1).pad((None, (0, 8 - x.shape[1]))).realize())
    x, found = square(8), []
    for n in (3, 3, 5, 7):
        result = jit(x[:, : tinygrad.Variable("n", 1, 8).bind(n)])
        found.append(int((result[0] != 0).sum().item()))
    assert found == [3, 3, 3, 3]


def test_symbolic_shape_of_a_result() -> None:
    jit, x = TinyJit(lambda x: x + 1), square(8)
    shapes = [str(jit(x[:, : tinygrad.Variable("n", 1, 8).bind(n)]).shape) for n in (3, 4, 5, 7)]
    assert len(set(shapes)) == 2 and shapes[1] == shapes[2] == shapes[3]


def test_intra_kernel_output_input_aliasing() -> None:
    def call(x: Any) -> Any:
        x.assign(x.flip(0) + x).realize()
        return x * 1

    jit = TinyJit(call)
    for number in range(5):
        x = of(number, 1, 2)
        assert jit(x).tolist() == x.tolist() == [number + 2, 2, number + 2]


def test_input_mutation_consistent() -> None:
    jit, x = TinyJit(lambda x: x.assign(x + 1).realize()), of(0)
    for _ in range(5):
        jit(x)
    assert x.item() == 5


def test_slice_assign_of_state() -> None:
    cache = of(0, 0, 0)

    def write(x: Any) -> Any:
        cache[1:2] = x
        return cache.sum()

    assert runs(TinyJit(write), cache.tolist) == [[0, number, 0] for number in range(5)]


def test_other_buffers() -> None:
    jit = TinyJit(lambda x: Tensor(x) * 2)
    found = [jit(numpy.full(1, number, dtype="float32")).item() for number in range(5)]
    assert found == [0, 2, 2, 2, 2]


def test_pruned_weights_are_not_stale() -> None:
    weight = of(0)
    jit, found = TinyJit(lambda x: x + (weight * 2).realize(), prune=True), []
    for number in range(5):
        weight.assign(of(number)).realize()
        found.append(jit(of(0)).item())
    assert found == [0, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("realizes", "expected"), [(True, [1, 2, 3, 4, 5]), (False, [1, 2, 2, 2, 2])]
)
def test_gradient_accumulation(realizes: bool, expected: list[float]) -> None:
    weight = of(1)
    weight.requires_grad = True

    def step(x: Any) -> Any:
        loss = (weight * x).sum()
        loss.backward()
        if realizes:
            weight.grad.realize()
        return loss.realize()

    jit, found = TinyJit(step), []
    for _ in range(5):
        jit(of(1))
        found.append(weight.grad.item())
    assert found == expected


@pytest.mark.parametrize("realizes", [True, False])
def test_batch_norm_statistics(realizes: bool) -> None:
    norm = tinygrad.nn.BatchNorm(1, affine=False)

    def call(x: Any) -> Any:
        found = norm(x).realize()
        if realizes:
            norm.running_mean.realize()
        return found

    jit, means = TinyJit(call), []
    with tinygrad.helpers.Context(TRAINING=1):
        for _ in range(5):
            jit(of(1, 1).reshape(2, 1).realize())
            means.append(norm.running_mean.item())
    assert len({round(mean, 4) for mean in means}) == (5 if realizes else 2)


def test_a_failed_recording_is_repeated() -> None:
    def call(x: Any, fails: bool) -> Any:
        if fails:
            raise ZeroDivisionError
        return x * 2

    jit = TinyJit(call)
    jit(of(1), False)
    with pytest.raises(ZeroDivisionError):
        jit(of(1), True)
    assert jit.captured is None
    assert [jit(of(number), False).item() for number in range(3)] == [0, 2, 4]
    assert jit.captured is not None


def test_reset() -> None:
    jit = TinyJit(lambda x: x * 2)
    for size in (3, 4):
        for _ in range(4):
            assert jit(square(size)).shape == (size, size)
        with pytest.raises(JitError, match="args mismatch"):
            jit(square(9))
        jit.reset()
        assert jit.captured is None
