# SPDX-License-Identifier: Apache-2.0
"""The cases of TinyJit's own unit tests that say what a jit does: what hostjit does in each.

Each docstring has the form "tinygrad: ...; hostjit: ..." from which a table is made.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from recorded_beside_eager import check
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.usefixtures("each_runtime")
randn = torch.randn


def test_simple_jit() -> None:
    """tinygrad: an unrealized result is realized; hostjit: there is nothing to realize."""
    check(lambda a, b: a + b, [(randn(10, 10), randn(10, 10)) for _ in range(5)])


def test_result_in_a_list() -> None:
    """tinygrad: so is a list of one; hostjit: the same list structure with new tensors."""
    check(lambda a, b: [a + b], [(randn(10, 10), randn(10, 10)) for _ in range(5)])


def test_result_in_a_dict() -> None:
    """tinygrad: so is a dict; hostjit: the same keys in the same order."""
    check(
        lambda a, b: {"z": a + b, "a": a - b},
        [(randn(10, 10), randn(10, 10)) for _ in range(5)],
    )


def test_multiple_outputs() -> None:
    """tinygrad: three results are three; hostjit: the same."""
    check(
        lambda a, b: (a + b, a - b, a * b),
        [(randn(10, 10), randn(10, 10)) for _ in range(5)],
    )


def test_shape_mismatch() -> None:
    """tinygrad: 20x20 after 10x10 raises; hostjit: is recorded too, or raises if that is chosen."""
    calls = [(randn(10, 10), randn(10, 10)) for _ in range(3)]
    check(lambda a, b: a + b, [*calls, (randn(20, 20), randn(20, 20)), *calls], recordings=2)
    strict = hostjit.capture(lambda a, b: a + b, on_mismatch="raise")
    for call in calls:
        strict(*call)
    text = r"argument 'a': sizes expected \[10, 10\], found \[20, 20\]"
    with pytest.raises(hostjit.MismatchError, match=text):
        strict(randn(20, 20), randn(20, 20))


def test_tensors_in_a_list() -> None:
    """tinygrad: a tensor in a list is an input; hostjit: the same, at any depth."""
    check(lambda a, b: a + b[0], [(randn(10, 10), [randn(10, 10)]) for _ in range(5)])


def test_method() -> None:
    """tinygrad: a decorated method is that of one instance; hostjit: of each of them."""

    class Function:
        def __init__(self) -> None:
            self.a = randn(10, 10)

        @hostjit.capture
        def __call__(self, b: torch.Tensor) -> torch.Tensor:
            return self.a + b

    for function in (Function(), Function()):
        for _ in range(5):
            b = randn(10, 10)
            assert_close(function(b), function.a + b)


def test_size1_input() -> None:
    """tinygrad: an input of one element is an input, not a constant; hostjit: the same."""
    check(lambda a: (a + 3).reshape(()), [(torch.tensor([float(i)]),) for i in range(5)])


def test_random_regen() -> None:
    """tinygrad: a seed gives a new jit its set again, and does nothing for a captured one;
    hostjit: eager's set, at any time."""

    def draw(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(10)

    fast = hostjit.capture(draw)
    x = torch.zeros(10)
    sets = []
    for call in (fast, fast, draw):
        torch.manual_seed(1234)
        sets.append(torch.stack([call(x) for _ in range(5)]))
    assert torch.equal(sets[0], sets[1])
    assert torch.equal(sets[0], sets[2])
    assert len(sets[0].unique(dim=0)) == 5
    torch.manual_seed(5)
    assert not torch.equal(torch.stack([fast(x) for _ in range(5)]), sets[0])


def test_multiple_random_regen() -> None:
    """tinygrad: several random tensors in one jit are independent; hostjit: the same."""

    def draw(x: torch.Tensor) -> torch.Tensor:
        return (torch.rand(10) - torch.rand(10)) * x + torch.randn(10)

    check(draw, [(torch.ones(10),) for _ in range(5)])


def test_random_after_unrealized_random() -> None:
    """tinygrad: random numbers of others in between are no obstacle; hostjit: the same."""
    fast = hostjit.capture(lambda: torch.rand(3))
    torch.manual_seed(7)
    expected = [torch.rand(3) for _ in range(10)]
    torch.manual_seed(7)
    found = [fast() if number % 2 else torch.rand(3) for number in range(10)]
    assert torch.equal(torch.stack(found), torch.stack(expected))


def test_randint() -> None:
    """tinygrad: the sequence of randint is that without the jit; hostjit: that of eager."""
    check(lambda x: x + torch.randint(0, 100, (8,)), [(torch.zeros(8),) for _ in range(5)])


def test_weight_of_a_closure() -> None:
    """tinygrad: a weight of the closure is right for any input; hostjit: and when it changes."""
    weight = torch.eye(4)
    fast = hostjit.capture(lambda x: x @ weight)
    for number in range(6):
        x = randn(2, 4)
        assert_close(fast(x), x @ weight)
        if number == 3:
            weight.mul_(2)


def test_output_clone() -> None:
    """tinygrad: a result has to be cloned to be kept; hostjit: it does not."""
    fast = hostjit.capture(lambda x: x + 1)
    results = [fast(torch.full((2,), float(i))) for i in range(6)]
    assert [float(result[0]) for result in results] == [1, 2, 3, 4, 5, 6]


def test_reused_outputs_are_the_same_memory() -> None:
    """tinygrad: results share memory from call to call; hostjit: with reuse_outputs=True."""
    fast = hostjit.capture(lambda x: x + 1, reuse_outputs=True)
    _ = [fast(torch.zeros(2)) for _ in range(3)]
    first = fast(torch.zeros(2))
    second = fast(torch.ones(2))
    assert first is second and float(first[0]) == 2


def test_recorded_on_empty_tensors() -> None:
    """tinygrad: recorded on tensors without values, silently wrong for others; hostjit: right."""
    fast = hostjit.capture(lambda x: x * 2 + 1)
    for _ in range(3):
        fast(torch.empty(3))
    x = randn(3)
    assert_close(fast(x), x * 2 + 1)


def test_write_into_an_empty_input() -> None:
    """tinygrad: an input without values is not written by replays; hostjit: it is."""

    def write(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return out.copy_(x * 2)

    fast = hostjit.capture(write)
    for _ in range(5):
        x = randn(3)
        out = torch.empty_like(x)
        assert fast(out, x) is out
        assert_close(out, x * 2)


def test_lazy_grad_after_replay() -> None:
    """tinygrad: a gradient is that of the capture unless realized; hostjit: it is a new tensor."""
    weight = torch.ones(3, requires_grad=True)

    @hostjit.capture
    def step(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        loss = (weight * x).sum()
        loss.backward()
        return loss.detach()

    kept = []
    for number in range(5):
        x = torch.full((3,), float(number))
        assert_close(step(x), x.sum())
        kept.append((weight.grad, x))
    for gradient, x in kept:
        assert_close(gradient, x)


def test_simple_prune() -> None:
    """tinygrad: prune drops the kernel of the weight alone; hostjit: the same, by effects."""
    weight = randn(4, 4)

    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ (weight * 2 + 1)

    pruned = hostjit.capture(product, prune=True)
    plain = hostjit.capture(product)
    for _ in range(4):
        x = randn(2, 4)
        assert_close(pruned(x), product(x))
        assert_close(plain(x), product(x))
    assert pruned.captured is not None and plain.captured is not None
    assert pruned.captured.pruned > 0 == plain.captured.pruned
    assert str(pruned.host_ir()).count("launch_kernel") < str(plain.host_ir()).count(
        "launch_kernel"
    )


def test_prune_in_any_order() -> None:
    """tinygrad: what is pruned depends on the order of kernels; hostjit: on what they read."""
    weight = randn(4)

    def first(x: torch.Tensor) -> torch.Tensor:
        scaled = weight * 2
        return x * weight + scaled

    def last(x: torch.Tensor) -> torch.Tensor:
        product = x * weight
        return product + weight * 2

    counts = []
    for function in (first, last):
        fast = hostjit.capture(function, prune=True)
        for _ in range(4):
            x = randn(4)
            assert_close(fast(x), function(x))
        assert fast.captured is not None
        counts.append(fast.captured.pruned)
    assert counts[0] == counts[1] == 1


def test_explicit_inputs_and_outputs() -> None:
    """tinygrad: explicit inputs and outputs always work; hostjit: the same."""
    check(lambda x: x + 1, [(torch.full((1,), float(i)),) for i in range(5)])


def test_implicit_input_that_is_updated() -> None:
    """tinygrad: an implicit input has to be realized if updated; hostjit: is read each time."""
    state = torch.zeros(1)
    fast = hostjit.capture(lambda: state + 1)
    for number in range(5):
        state.fill_(number)
        assert float(fast()) == number + 1


def test_implicit_output_and_input() -> None:
    """tinygrad: writes have to be realized inside, else it raises; hostjit: they are replayed."""
    state = torch.zeros(1)

    @hostjit.capture
    def count() -> None:
        state.add_(1)

    for number in range(5):
        count()
        assert float(state) == number + 1


def test_recorded_twice_in_turns() -> None:
    """tinygrad: two jits of one function are two; hostjit: the same, with states of their own."""
    first, second = (hostjit.capture(lambda x: x * 3) for _ in range(2))
    for _ in range(4):
        x = randn(3)
        assert_close(first(x), second(x))
    first.reset()
    assert first.captured is None and second.captured is not None


def test_a_changed_dtype() -> None:
    """tinygrad: another dtype raises; hostjit: it is recorded too."""
    calls = [(randn(3),), (randn(3),), (randn(3).double(),), (randn(3),), (randn(3).double(),)]
    check(lambda x: x * 2, calls, recordings=2)


def test_a_cache_that_is_fed_back() -> None:
    """tinygrad: an output given back as an input is copied first; hostjit: is right as it is."""

    def push(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([cache[1:], x])

    fast = hostjit.capture(push)
    found = expected = torch.zeros(4)
    for _ in range(8):
        x = randn(1)
        found, expected = fast(found, x), push(expected, x)
        assert_close(found, expected)


def test_beam_search_at_capture_only(tmp_path: Path) -> None:
    """tinygrad: kernels are searched for at the capture only; hostjit: compiled there only."""
    fast = hostjit.capture(lambda x: (x @ x).tanh())
    counts = []
    with hostjit.knobs(dump="host_ir", dump_directory=str(tmp_path)):
        for _ in range(5):
            fast(randn(4, 4))
            counts.append(len([*tmp_path.iterdir()]))
    assert counts == [0, 1, 1, 1, 1]


def test_zero_does_not_jit() -> None:
    """tinygrad: with JIT=0 nothing is captured; hostjit: with the knob compile off."""
    fast = hostjit.capture(lambda a, b: a + b)
    with hostjit.knobs(disable="compile"):
        for _ in range(5):
            a, b = randn(10, 10), randn(10, 10)
            assert_close(fast(a, b), a + b)
    assert fast.captured is None


def test_zero_then_one() -> None:
    """tinygrad: JIT=1 after calls under JIT=0 fails an assertion; hostjit: records then."""
    fast = hostjit.capture(lambda a, b: a + b)
    for number in range(12):
        a, b = randn(10, 10), randn(10, 10)
        with hostjit.knobs(disable="compile" if number // 3 % 2 == 0 else ""):
            assert_close(fast(a, b), a + b)
        assert (fast.captured is None) == (number < 4)
    assert len(fast.specializations) == 1


_seen: list[float] = []


@torch.library.custom_op("hostjit_tests::note", mutates_args=())
def _note(x: torch.Tensor) -> torch.Tensor:
    _seen.append(float(x.sum()))
    return x.clone()


@_note.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_not_capturing() -> None:
    """tinygrad: with CAPTURING=0 a part runs at the capture only; hostjit: the Python code of a
    torch.library.custom_op is not recorded, and runs at each call."""
    _seen.clear()
    fast = hostjit.capture(lambda x: _note(x * 2) + 1)
    for number in range(5):
        x = torch.full((2,), float(number))
        assert_close(fast(x), x * 2 + 1)
        assert _seen == [4.0 * index for index in range(number + 1)]
    assert fast.captured is not None


def test_const_input() -> None:
    """tinygrad: an input that is a constant raises, a number is frozen; hostjit: a number is
    compared, and any tensor is an input."""
    fast = hostjit.capture(lambda x, k: x + k)
    for number in (1.0, 1.0, 1.0, 2.0, 2.0, 1.0):
        x = randn(3)
        assert_close(fast(x, number), x + number)
    assert len(fast.specializations) == 2
    check(lambda x: x + 1, [(torch.tensor(number),) for number in (2.0, 3.0, 4.0, 5.0)])


def test_deviceless_compute_input() -> None:
    """tinygrad: an input computed of constants alone raises; hostjit: any tensor is an input."""
    calls = [(torch.tensor(2.0 * number) * 3 + 1,) for number in range(5)]
    check(lambda x: x + 1, calls)
    check(lambda x: x + 1, [(torch.arange(3) * number,) for number in range(5)])


def test_random_with_and_without_a_jit() -> None:
    """tinygrad: a seed gives the same numbers with the jit and without; hostjit: the same."""
    for draw in (torch.rand, torch.randn):
        fast = hostjit.capture(lambda draw=draw: draw(10))
        sets = []
        for call in (fast, lambda draw=draw: draw(10)):
            torch.manual_seed(3)
            sets.append(torch.stack([call() for _ in range(5)]))
        assert torch.equal(sets[0], sets[1])


def test_implicit_output() -> None:
    """tinygrad: what is assigned has to be realized inside, else it raises; hostjit: writes are
    replayed."""
    state = torch.zeros(1)

    @hostjit.capture
    def assign(x: torch.Tensor) -> None:
        state.copy_(x)

    for number in range(5):
        assign(torch.tensor([float(number)]))
        assert float(state) == number
