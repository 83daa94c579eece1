# SPDX-License-Identifier: Apache-2.0
"""What TinyJit documents as footguns, its errors and its holes: what hostjit does instead.

Each docstring has the form "tinygrad: ...; hostjit: ..." from which a table can be made.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from recorded_beside_eager import check
from torch import nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.usefixtures("each_runtime")
randn = torch.randn


def test_class_method_shared_across_instances() -> None:
    """tinygrad: instances share one capture, silently wrong; hostjit: one for each instance."""

    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = torch.full((3,), scale)

        @hostjit.capture
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    first, second = Model(2.0), Model(3.0)
    for _ in range(4):
        x = randn(3)
        assert_close(first(x), x * 2)
        assert_close(second(x), x * 3)


def test_slice_assign_requires_realize() -> None:
    """tinygrad: a slice that is written and not read is lost without realize(); hostjit: is
    written by each replay."""

    def write(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[1:2] = x
        return cache * 1

    def write_only(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache[1:2] = x
        return x * 1

    for function in (write, write_only):
        check(function, [(randn(4, 3), randn(1, 3)) for _ in range(4)])


def test_output_buffer_reuse() -> None:
    """tinygrad: the next replay overwrites the last result; hostjit: results are new tensors."""
    fast = hostjit.capture(lambda x: x * 2)
    results = [fast(torch.full((3,), float(i))) for i in range(5)]
    for i, result in enumerate(results):
        assert_close(result, torch.full((3,), 2.0 * i))


def test_python_constants_frozen() -> None:
    """tinygrad: Python values are frozen at the capture, silently; hostjit: they are compared."""
    check(lambda x, k: x * k, [(randn(3), k) for k in (2, 2, 2, 3, 3, 2)], recordings=2)


def test_python_globals_frozen() -> None:
    """tinygrad: so are globals and attributes; hostjit: they are watched."""

    class Config:
        scale = 2.0

    config = Config()
    fast = hostjit.capture(lambda x: x * config.scale)
    for scale in (2.0, 2.0, 2.0, 5.0, 5.0):
        config.scale = scale
        x = randn(3)
        assert_close(fast(x), x * scale)


def test_conditional_branches_frozen() -> None:
    """tinygrad: the branch of the capture is kept for a flag, and one on a tensor raises; hostjit:
    the flag is compared, and both branches are computed for a tensor."""

    def branch(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    ones = torch.ones(3)
    check(branch, [(ones,), (ones,), (-ones,), (ones,), (-ones,)], recordings=1)
    flags = (True, True, False, True, False, False)
    check(lambda x, flag: x * 2 if flag else x - 1, [(ones, f) for f in flags], recordings=2)


def test_item_bakes_in_values() -> None:
    """tinygrad: .item() in a capture raises; hostjit: any number, one that others see is guarded.

    Or an error if that is chosen.
    """

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * x[0].item()

    def show(x: torch.Tensor) -> torch.Tensor:
        return x * len(str(x[0].item()))

    calls = [(torch.ones(2) * k,) for k in (1, 1, 2, 2, 1)]
    check(scale, calls, recordings=1)
    check(show, calls, recordings=2)
    raising = hostjit.capture(scale, on_read="raise")
    raising(torch.ones(2))
    with pytest.raises(hostjit.CaptureError, match=r"\.item\(\) reads data(.|\n)*footguns.py:\d+"):
        raising(torch.ones(2))


@pytest.mark.parametrize("read", ["tolist", "numpy", "repr", "format", "bool", "equal"])
def test_data_is_never_baked_in(read: str) -> None:
    """tinygrad: reads of data raise, and repr() has none; hostjit: each is a guard or not
    replayed."""

    def call(x: torch.Tensor) -> Any:
        if read == "tolist":
            return x * x.tolist()[0]
        if read == "numpy":
            return x * float(x.numpy()[0])
        if read == "repr":
            return x * len(repr(x))
        if read == "format":
            return x * float(f"{x[0]:.1f}")
        if read == "bool":
            return x * 2 if (x > 0).all() else x
        return x if torch.equal(x, torch.ones(2)) else x * 3

    calls = [(torch.ones(2) * k,) for k in (1, 1, 1, -12, -12, 1)]
    check(call, calls, recordings=None if read == "numpy" else 2)
    raising = hostjit.capture(call, on_read="raise", warmup=0)
    with pytest.raises(hostjit.CaptureError, match="reads data"):
        raising(torch.ones(2))


def test_unrealized_const_input() -> None:
    """tinygrad: an input that is a constant raises; hostjit: any tensor is an input."""
    check(lambda x: x + 1, [(torch.zeros(()),), (torch.ones(()),), (torch.zeros(()).expand(()),)])
    check(lambda x: x + 1, [(torch.zeros(1).expand(4),) for _ in range(3)])


def test_non_tensor_outputs() -> None:
    """tinygrad: a number in the result raises; hostjit: any Python value comes back."""
    check(lambda x: (x * 2, 5, {"n": "text", "none": None}), [(randn(3),) for _ in range(3)])


def test_positional_kwargs_mix() -> None:
    """tinygrad: positional after keyword raises; hostjit: either is right."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - b

    fast = hostjit.capture(call, on_mismatch="raise")
    for number in range(9):
        a, b = randn(3), randn(3)
        args, kwargs = [((a, b), {}), ((a,), {"b": b}), ((), {"b": b, "a": a})][number % 3]
        assert_close(fast(*args, **kwargs), a - b)


def test_kwargs_order_doesnt_matter() -> None:
    """tinygrad: order is irrelevant; hostjit: the same."""
    fast = hostjit.capture(lambda *, first, second: first - second)
    for _ in range(3):
        a, b = randn(3), randn(3)
        assert_close(fast(first=a, second=b), a - b)
        assert_close(fast(second=b, first=a), a - b)


def test_duplicate_inputs() -> None:
    """tinygrad: one tensor twice raises; hostjit: it is right, also in turns, also when written."""

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a + b

    fast = hostjit.capture(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(8):
            x, y = randn(3), randn(3)
            second = x if number % 2 else y
            expected = (x + 1) + (x + 1 if number % 2 else y)
            assert_close(fast(x, second), expected)


def test_views_of_one_another() -> None:
    """tinygrad: two views of one buffer raise; hostjit: they are right, also when written."""

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b * 2

    def write(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(3)
        return a + b

    for function in (add, write):
        fast = hostjit.capture(function)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(8):
                base, other = randn(6), randn(4)
                a, b = (base[:4], base[number % 3 :][:4]) if number % 2 else (base[:4], other)
                base2, other2 = base.clone(), other.clone()
                a2, b2 = (base2[:4], base2[number % 3 :][:4]) if number % 2 else (base2[:4], other2)
                assert_close(fast(a, b), function(a2, b2))
                assert_close(base, base2)


def test_views_with_different_offsets() -> None:
    """tinygrad: another offset raises; hostjit: inputs may begin anywhere."""
    fast = hostjit.capture(lambda x: x * 2, on_mismatch="raise")
    base = randn(10)
    for offset in (0, 0, 1, 3, 5):
        assert_close(fast(base[offset:][:4]), base[offset:][:4] * 2)


def test_nested_jit() -> None:
    """tinygrad: a jit in a jit raises, or is silently wrong if it was captured before; hostjit: it
    becomes part of the other."""
    inner = hostjit.capture(lambda x: x * 2)
    outer = hostjit.capture(lambda x: inner(x) + 1)
    for _ in range(5):
        x = randn(3)
        assert_close(inner(x), x * 2)
        assert_close(outer(x), x * 2 + 1)
    assert outer.captured is not None


def test_implicit_inputs() -> None:
    """tinygrad: a tensor of the closure is that of the capture, and has to be realized where it was
    assigned; hostjit: is read at each call."""
    state = {"weight": torch.ones(3)}
    fast = hostjit.capture(lambda x: x * state["weight"])
    for number in range(6):
        if number % 2:
            state["weight"] = torch.full((3,), float(number))
        else:
            state["weight"].add_(1)
        x = randn(3)
        assert_close(fast(x), x * state["weight"])


def test_implicit_outputs() -> None:
    """tinygrad: an attribute assigned in the jit is stale; hostjit: replays assign it."""

    class Model:
        last: Any = None

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x * 2
            return self.last + 1

    model = Model()
    fast = hostjit.capture(model)
    for _ in range(6):
        x = randn(3)
        assert_close(fast(x), x * 2 + 1)
        assert_close(model.last, x * 2)
    assert fast.captured is not None


def test_implicit_outputs_in_place() -> None:
    """tinygrad: an assign() that nothing reads is lost unless realized; hostjit: writes are
    replayed."""
    buffer, expected = torch.zeros(3), torch.zeros(3)
    fast = hostjit.capture(lambda x: buffer.add_(x).sum())
    for _ in range(5):
        x = randn(3)
        expected += x
        assert_close(fast(x), expected.sum())
        assert_close(buffer, expected)

    def add(x: torch.Tensor) -> torch.Tensor:
        buffer.add_(x)
        return x * 1

    write_only = hostjit.capture(add)
    for _ in range(5):
        expected += 1
        write_only(torch.ones(3))
        assert_close(buffer, expected)


def test_side_effects_only_during_capture() -> None:
    """tinygrad: Python side effects stop at the capture; hostjit: they happen at every call."""
    calls: list[int] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 2

    fast = hostjit.capture(call)
    with pytest.warns(UserWarning, match=r"changes 'calls' of"):
        _ = [fast(randn(3)) for _ in range(5)]
    assert len(calls) == 5


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    """tinygrad: printing stops at the capture; hostjit: it happens at every call."""

    def call(x: torch.Tensor) -> torch.Tensor:
        print("called")
        return x * 2

    fast = hostjit.capture(call)
    with pytest.warns(UserWarning, match="calls 'print'"):
        _ = [fast(randn(3)) for _ in range(4)]
    assert capsys.readouterr().out == "called\n" * 4


def test_nothing_realized() -> None:
    """tinygrad: a function without kernels raises; hostjit: it is replayed all the same."""
    check(lambda x: None, [(randn(3),) for _ in range(3)])
    check(lambda: 5, [() for _ in range(3)])


def test_one_dimensional_inputs_are_checked() -> None:
    """tinygrad: a vector of 8 is taken for one of 4, answer 8; hostjit: 16."""
    fast = hostjit.capture(lambda x: (x * 2).sum())
    for _ in range(3):
        assert float(fast(torch.ones(4))) == 8
    assert float(fast(torch.ones(8))) == 16
    assert float(fast(torch.ones(2))) == 4


def test_dicts_by_key() -> None:
    """tinygrad: a dict in another order swaps inputs; hostjit: keys count."""
    fast = hostjit.capture(lambda d: d["x"] - d["y"])
    for number in range(6):
        x, y = randn(3), randn(3)
        given = {"x": x, "y": y} if number % 2 else {"y": y, "x": x}
        assert_close(fast(given), x - y)
    with pytest.raises(KeyError):
        fast({"x": randn(3), "z": randn(3)})


def test_nested_containers() -> None:
    """tinygrad: tensors in nested containers are frozen; hostjit: inputs at any depth."""
    check(
        lambda xs: xs[0]["a"][0][0] + xs[1],
        [([{"a": ([randn(3)],)}, randn(3)],) for _ in range(5)],
    )


def test_returned_input() -> None:
    """tinygrad: a returned input is that of the capture; hostjit: that of the call."""
    fast = hostjit.capture(lambda x: (x, x * 2))
    for _ in range(4):
        x = randn(3)
        same, double = fast(x)
        assert same is x
        assert_close(double, x * 2)


def test_output_fed_back() -> None:
    """tinygrad: right by a copy at every call; hostjit: right without one."""
    fast = hostjit.capture(lambda x: x * 2 + 1)
    x = expected = torch.ones(3)
    for _ in range(8):
        x, expected = fast(x), expected * 2 + 1
        assert_close(x, expected)


def test_graph_input_output_aliasing() -> None:
    """tinygrad: right, where graphs of kernels were wrong once; hostjit: right."""

    def step(token: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.copy_(cache.roll(1) + token)
        return cache[:1] * 0.5

    for runtime in ("jit", "evaluator"):
        fast = hostjit.capture(step, runtime=runtime)
        token, cache = torch.ones(1), torch.zeros(4)
        token2, cache2 = token.clone(), cache.clone()
        for number in range(8):
            if number == 5:
                token, token2 = torch.ones(1), torch.ones(1)
            token, token2 = fast(token, cache), step(token2, cache2)
            assert_close(token, token2)
            assert_close(cache, cache2)


def test_multiple_outputs_same_intermediate() -> None:
    """tinygrad: right; hostjit: right."""

    def call(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shared = x * 2
        return shared + 1, shared - 1, shared

    check(call, [(randn(3),) for _ in range(4)])


def test_random_regenerates() -> None:
    """tinygrad: random numbers advance; hostjit: the same numbers as eager, call by call."""
    check(lambda x: x + torch.rand(3) + torch.randn(3), [(randn(3),) for _ in range(5)])


def test_masked_select() -> None:
    """tinygrad: sizes that depend on data raise; hostjit: the size is a guard."""
    calls = [(randn(5), torch.arange(5) < size) for size in (2, 2, 2, 4, 2, 4)]
    check(lambda x, mask: (x[mask], torch.masked_select(x, mask)), calls, recordings=2)


def test_nonzero() -> None:
    """tinygrad: so it is with nonzero; hostjit: and here."""
    calls = [(torch.arange(5) < size,) for size in (2, 2, 2, 4, 2, 4)]
    check(lambda mask: (mask.nonzero(), torch.where(mask)[0]), calls, recordings=2)


def test_masked_select_static_size() -> None:
    """tinygrad: with a size given it is jitted; hostjit: one recording for all masks."""
    check(
        lambda x, mask: x[torch.nonzero_static(mask, size=3)[:, 0]],
        [(randn(5), torch.arange(5) < size) for size in (3, 3, 3, 4, 5)],
    )


def test_nonzero_static_size() -> None:
    """tinygrad: with a size given it is jitted; hostjit: one recording for all masks, filled up."""
    check(
        lambda mask: torch.nonzero_static(mask, size=4, fill_value=-1),
        [(torch.arange(5) < size,) for size in (2, 2, 2, 4, 5)],
    )


def test_symbolic_pad_view_frozen() -> None:
    """tinygrad: a pad by a variable keeps the size of the capture; hostjit: follows the Dim."""
    length = hostjit.Dim("length", 1, 8)

    def call(x: torch.Tensor, n: int) -> torch.Tensor:
        return nn.functional.pad(x[:n], (0, 8 - n)) * 2

    fast = hostjit.capture(call)
    for n in (3, 3, 3, 5, 2, 7):
        x = randn(8)
        assert_close(fast(x, length(n)), call(x, n))


def test_symbolic_shape_of_a_result() -> None:
    """tinygrad: a result keeps the symbolic shape of the capture; hostjit: has that of the call."""
    length = hostjit.Dim("length", 2, 8)
    fast = hostjit.capture(lambda x, n: x[:n] + 1)
    for n in (3, 3, 3, 5, 2, 7):
        x = randn(8)
        assert fast(x, length(n)).shape == (n,)


def test_intra_kernel_output_input_aliasing() -> None:
    """tinygrad: right; hostjit: right."""

    def call(x: torch.Tensor) -> torch.Tensor:
        x.copy_(x.flip(0) + x)
        return x * 1

    check(call, [(randn(4),) for _ in range(4)])


def test_input_mutation_consistent() -> None:
    """tinygrad: an input that is written is written at each call; hostjit: the same."""
    check(lambda x: x.add_(1), [(randn(3),) for _ in range(4)])


def test_slice_assign_of_state() -> None:
    """tinygrad: a slice that is written and read works without realize(); hostjit: works."""
    cache, expected = torch.zeros(4, 3), torch.zeros(4, 3)

    @hostjit.capture
    def write(x: torch.Tensor) -> torch.Tensor:
        cache[1:3] = x
        return cache.sum()

    for _ in range(5):
        x = randn(2, 3)
        expected[1:3] = x
        assert_close(write(x), expected.sum())
        assert_close(cache, expected)


def test_other_buffers() -> None:
    """tinygrad: an input that is an array is frozen; hostjit: it makes a call eager."""
    numpy = pytest.importorskip("numpy")
    fast = hostjit.capture(lambda x: torch.from_numpy(x) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(5):
            x = numpy.full(3, float(number))
            assert_close(fast(x), torch.from_numpy(x) * 2)


def test_pruned_weights_are_not_stale() -> None:
    """tinygrad: pruned results never refresh; hostjit: computed anew when a weight is written."""
    weight = torch.ones(3)
    fast = hostjit.capture(lambda x: x + (weight * 2).exp(), prune=True)
    for number in range(6):
        if number >= 3:
            weight.add_(0.5)
        x = randn(3)
        assert_close(fast(x), x + (weight * 2).exp())


def test_gradient_accumulation() -> None:
    """tinygrad: accumulated gradients are stale unless realized inside; hostjit: as eager."""
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())

    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    fast = hostjit.capture(lambda x: step(model, x))
    for number in range(8):
        if number == 5:
            model.zero_grad()
            twin.zero_grad()
        x = randn(4, 3)
        assert_close(fast(x), step(twin, x))
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            assert_close(a.grad, b.grad)


def test_batch_norm_statistics() -> None:
    """tinygrad: running statistics are stale unless realized inside; hostjit: they are written."""
    model, twin = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    fast = hostjit.capture(model)
    with torch.no_grad():
        for number in range(6):
            model.train(number != 4)
            twin.train(number != 4)
            x = randn(5, 3)
            assert_close(fast(x), twin(x))
            assert_close(model.state_dict(), twin.state_dict())


def test_a_failed_recording_is_repeated() -> None:
    """tinygrad: after an exception the next call captures; hostjit: the next call records."""

    def call(x: torch.Tensor, fails: bool) -> torch.Tensor:
        if fails:
            raise ZeroDivisionError("on purpose")
        return x * 2

    fast = hostjit.capture(call)
    fast(randn(3), False)
    with pytest.raises(ZeroDivisionError):
        fast(randn(3), True)
    for _ in range(3):
        x = randn(3)
        assert_close(fast(x, False), x * 2)
    assert fast.captured is not None


def test_reset() -> None:
    """tinygrad: reset() captures anew, with another shape; hostjit: the same."""
    fast = hostjit.capture(lambda x: x * 2, on_mismatch="raise")
    for size in (3, 4):
        for _ in range(4):
            x = randn(size)
            assert_close(fast(x), x * 2)
        with pytest.raises(hostjit.MismatchError):
            fast(randn(9))
        fast.reset()
        assert fast.captured is None
