# SPDX-License-Identifier: Apache-2.0
"""What tinygrad gives for the rows of test_tinyjit_unit_cases.py, as of tinygrad 0.14.0.

A test has the name of its row. They run where tinygrad and clang are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tinygrad_programs import calls, of, random_of, runs, square

tinygrad = pytest.importorskip("tinygrad")
Tensor, TinyJit, Context = tinygrad.Tensor, tinygrad.TinyJit, tinygrad.helpers.Context
engine = pytest.importorskip("tinygrad.engine.jit")
JitError = engine.JitError


def test_simple_jit() -> None:
    assert calls(TinyJit(lambda x: x + 1)) == [1, 2, 3, 4, 5]


def test_result_in_a_list() -> None:
    jit = TinyJit(lambda x: [x + 1])
    assert [jit(of(number))[0].item() for number in range(5)] == [1, 2, 3, 4, 5]


def test_result_in_a_dict() -> None:
    jit = TinyJit(lambda x: {"a": x + 1})
    assert [jit(of(number))["a"].item() for number in range(5)] == [1, 2, 3, 4, 5]


def test_multiple_outputs() -> None:
    jit = TinyJit(lambda x: (x + 1, x - 1, x * 2))
    for number in range(5):
        found = [result.item() for result in jit(of(number))]
        assert found == [number + 1, number - 1, number * 2]


def test_shape_mismatch() -> None:
    jit = TinyJit(lambda a, b: a + b)
    for _ in range(3):
        jit(square(10), square(10))
    with pytest.raises(JitError, match="args mismatch"):
        jit(square(20), square(20))


def test_tensors_in_a_list() -> None:
    jit = TinyJit(lambda a, b: a + b[0])
    assert [jit(of(1), [of(number)]).item() for number in range(5)] == [1, 2, 3, 4, 5]


def test_method() -> None:
    class Function:
        def __init__(self, a: float) -> None:
            self.a = of(a)

        @TinyJit
        def __call__(self, b: Any) -> Any:
            return self.a + b

    assert calls(Function(1)) == [1, 2, 3, 4, 5]
    assert calls(Function(2)) == [1, 2, 3, 4, 5]


def test_size1_input() -> None:
    assert calls(TinyJit(lambda x: (x + 3).reshape(()))) == [3, 4, 5, 6, 7]


def _drawn(draw: Callable[[Any], Any]) -> list[Any]:
    return [draw(of(0, 0, 0)).tolist() for _ in range(5)]


def test_random_regen() -> None:
    sets = []
    first, second = (TinyJit(lambda x: x + Tensor.rand(3)) for _ in range(2))
    for jit in (first, second, first):
        Tensor.manual_seed(1234)
        sets.append(_drawn(jit))
    assert sets[0] == sets[1] != sets[2]


def test_multiple_random_regen() -> None:
    jit = TinyJit(lambda x: (x + Tensor.rand(3), x + Tensor.rand(3), x + Tensor.randn(3)))
    found = {tuple(result.tolist()) for _ in range(5) for result in jit(of(0, 0, 0))}
    assert len(found) == 15


def test_random_after_unrealized_random() -> None:
    Tensor.manual_seed(7)
    expected = [Tensor.rand(3).tolist() for _ in range(10)]
    jit = TinyJit(lambda: Tensor.rand(3))
    Tensor.manual_seed(7)
    assert [(jit() if n % 2 else Tensor.rand(3)).tolist() for n in range(10)] == expected


def test_randint() -> None:
    jit = TinyJit(lambda x: x + Tensor.randint(8, low=0, high=100))
    Tensor.manual_seed(3)
    expected = [Tensor.randint(8, low=0, high=100).tolist() for _ in range(5)]
    Tensor.manual_seed(3)
    assert [jit(of(*[0] * 8, dtype="int32")).tolist() for _ in range(5)] == expected


def test_weight_of_a_closure() -> None:
    weight = random_of(4, 4)
    jit = TinyJit(lambda x: x @ weight)
    for _ in range(5):
        x = random_of(2, 4)
        numpy.testing.assert_allclose(jit(x).numpy(), x.numpy() @ weight.numpy(), rtol=1e-4)


def test_output_clone() -> None:
    jit = TinyJit(lambda x: x + 1)
    kept = [jit(of(number)).clone().realize() for number in range(5)]
    assert [result.item() for result in kept] == [1, 2, 3, 4, 5]


def test_reused_outputs_are_the_same_memory() -> None:
    jit = TinyJit(lambda x: x + 1)
    results = [jit(of(number)) for number in range(5)]
    assert results[2] is results[3] is results[4]


def test_recorded_on_empty_tensors() -> None:
    jit = TinyJit(lambda x: x * 2 + 1)
    for _ in range(3):
        jit(Tensor.empty(3))
    assert jit(of(1, 2, 3)).tolist() != [3, 5, 7]


def test_write_into_an_empty_input() -> None:
    jit = TinyJit(lambda out, x: out.assign(x * 2).realize())
    returned, written = [], []
    for number in range(1, 6):
        out = Tensor.empty(1)
        returned.append(jit(out, of(number)).item())
        written.append(out.item())
    assert returned == [2, 4, 6, 8, 10]
    assert written[:2] == [2, 4] and not {6, 8, 10} & set(written[2:])


def test_lazy_grad_after_replay() -> None:
    weight = of(1)
    weight.requires_grad = True

    def step(x: Any) -> Any:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss.realize()

    assert runs(TinyJit(step), lambda: weight.grad.item()) == [0, 1, 1, 1, 1]


def _captured(function: Callable[..., Any], *, prune: bool) -> int:
    """How many kernels are replayed."""
    jit = TinyJit(function, prune=prune)
    for _ in range(3):
        jit(random_of(4))
    return len(jit.captured.linear.src)


def test_simple_prune() -> None:
    weight = random_of(4)

    def add(x: Any) -> Any:
        return x + (weight * 2).contiguous()

    assert [_captured(add, prune=prune) for prune in (False, True)] == [2, 1]


def test_prune_in_any_order() -> None:
    weight = random_of(4)

    def first(x: Any) -> Any:
        scaled = (weight * 2).contiguous().realize()
        return x * weight + scaled

    def last(x: Any) -> Any:
        product = (x * weight).contiguous().realize()
        return product + (weight * 2).contiguous().realize()

    assert [_captured(function, prune=False) for function in (first, last)] == [2, 3]
    assert [_captured(function, prune=True) for function in (first, last)] == [1, 3]


def test_explicit_inputs_and_outputs() -> None:
    assert calls(TinyJit(lambda x: x * 2)) == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("realizes", "expected"), [(True, [1, 2, 3, 4, 5]), (False, [1, 2, 2, 2, 2])]
)
def test_implicit_input_that_is_updated(realizes: bool, expected: list[float]) -> None:
    state, found = of(0), []
    jit = TinyJit(lambda: state + 1)
    for number in range(5):
        state.assign(of(number))
        if realizes:
            state.realize()
        found.append(jit().item())
    assert found == expected


def test_implicit_output_and_input() -> None:
    state = of(0)
    realized = TinyJit(lambda x: [state.assign(state + 1).realize(), None][1])
    assert runs(realized, state.item) == [1, 2, 3, 4, 5]
    lazy = TinyJit(lambda x: [state.assign(state + 1), None][1])
    lazy(of(1))
    with pytest.raises(JitError, match="didn't JIT anything"):
        lazy(of(1))


def test_recorded_twice_in_turns() -> None:
    first, second = (TinyJit(lambda x: x * 3) for _ in range(2))
    for number in range(4):
        assert first(of(number)).item() == second(of(number)).item() == 3 * number
    first.reset()
    assert first.captured is None and second.captured is not None


def test_a_changed_dtype() -> None:
    jit = TinyJit(lambda x: x * 2)
    for _ in range(3):
        jit(of(1))
    with pytest.raises(JitError, match="args mismatch"):
        jit(of(1, dtype="float64"))


def test_a_cache_that_is_fed_back() -> None:
    jit, cache, expected, kernels = TinyJit(lambda cache, x: cache[1:].cat(x)), of(0, 0), [0, 0], []
    for number in range(6):
        tinygrad.GlobalCounters.reset()
        cache, expected = jit(cache, of(number)), [expected[1], number]
        kernels.append(tinygrad.GlobalCounters.kernel_count)
        assert cache.tolist() == expected
    assert kernels[-1] > kernels[0]


def test_beam_search_at_capture_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    compile_linear = engine.compile_linear

    def note(*args: Any, **kwargs: Any) -> Any:
        compiled.append(kwargs)
        return compile_linear(*args, **kwargs)

    monkeypatch.setattr(engine, "compile_linear", note)
    assert runs(TinyJit(lambda x: x + 1), lambda: len(compiled)) == [0, 1, 1, 1, 1]
    assert "beam" in compiled[0]


def test_zero_does_not_jit() -> None:
    jit = TinyJit(lambda x: x + 1)
    with Context(JIT=0):
        assert calls(jit) == [1, 2, 3, 4, 5]
    assert jit.captured is None


def test_zero_then_one() -> None:
    jit = TinyJit(lambda x: x + 1)
    with Context(JIT=0):
        calls(jit)
    with pytest.raises(AssertionError):
        jit(of(1))


def test_not_capturing() -> None:
    side = of(0)

    def call(x: Any) -> Any:
        with Context(CAPTURING=0):
            side.assign(x * 2).realize()
        return x * 2 + 1

    jit = TinyJit(call)
    assert runs(jit, side.item) == [0, 2, 2, 2, 2]
    assert calls(jit) == [1, 3, 5, 7, 9]


def test_const_input() -> None:
    with pytest.raises(JitError, match="must be real buffers"):
        TinyJit(lambda x: x + 1)(Tensor(2.0))
    jit = TinyJit(lambda x, k: x + k)
    assert [jit(of(1), k).item() for k in (1.0, 2.0, 3.0)] == [2, 3, 3]


def test_deviceless_compute_input() -> None:
    with pytest.raises(JitError, match="must be real buffers"):
        TinyJit(lambda x: x + 1)(Tensor(2.0) * 3 + 1)


def test_random_with_and_without_a_jit() -> None:
    for draw in (Tensor.rand, Tensor.randn):
        sets = []
        for function in (lambda x, draw=draw: (x + draw(3)).realize(), None):
            function = function or TinyJit(lambda x, draw=draw: x + draw(3))
            Tensor.manual_seed(3)
            sets.append(_drawn(function))
        assert sets[0] == sets[1]


def test_implicit_output() -> None:
    state = of(0)
    realized = TinyJit(lambda x: [state.assign(x).realize(), None][1])
    assert runs(realized, state.item) == [0, 1, 2, 3, 4]
    lazy = TinyJit(lambda x: [state.assign(x), None][1])
    lazy(of(1))
    with pytest.raises(JitError, match="didn't JIT anything"):
        lazy(of(1))
