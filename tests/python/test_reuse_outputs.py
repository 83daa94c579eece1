# SPDX-License-Identifier: Apache-2.0
"""compile(reuse_outputs=True): the same tensors at every call, as long as that is safe."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import hostjit


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def double(x: torch.Tensor) -> torch.Tensor:
    return x + x


@pytest.fixture(params=["jit", "evaluator"])
def fast(request: pytest.FixtureRequest) -> hostjit._C.CompiledFunction:
    return hostjit.compile(double, runtime=request.param, dynamic=False, reuse_outputs=True)


def test_the_same_tensor_with_new_values(fast: hostjit._C.CompiledFunction) -> None:
    first = fast(torch.ones(4))
    version = first._version
    second = fast(torch.full((4,), 3.0))
    assert second is first
    assert_close(first, torch.full((4,), 6.0))
    assert first._version > version
    other = fast(torch.ones(5))
    assert other is not first
    assert fast(torch.ones(4)) is first
    assert fast(torch.ones(5)) is other


def test_new_tensors_without_the_option() -> None:
    fast = hostjit.compile(double)
    first = fast(torch.ones(4))
    assert fast(torch.ones(4)) is not first


def test_a_result_that_nobody_holds_comes_back(fast: hostjit._C.CompiledFunction) -> None:
    place = fast(torch.ones(4)).data_ptr()
    for _ in range(3):
        assert fast(torch.ones(4)).data_ptr() == place


def test_a_result_that_is_the_next_input(fast: hostjit._C.CompiledFunction) -> None:
    state = torch.ones(1000)
    for _ in range(3):
        previous = state
        state = fast(previous)
        assert state is not previous
        assert_close(state, previous + previous)
    view = state[::2]
    assert_close(fast(torch.from_numpy(state.numpy())), state + state)
    assert fast(view).shape == (500,)
    assert_close(view, state[::2])


def test_a_module_with_several_outputs() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            hidden = torch.tanh(self.linear(x))
            return hidden, {"sum": hidden.sum(-1), "row": hidden[0]}

    module = Block()
    fast = hostjit.compile(module, reuse_outputs=True)
    hidden, rest = fast(torch.ones(2, 8))
    for _ in range(3):
        x = torch.randn(2, 8)
        again, more = fast(x)
        assert again is hidden
        expected, expected_rest = module(x)
        assert_close(again, expected)
        assert_close(more, expected_rest)
        assert_close(rest["row"], expected_rest["row"])  # a view sees what is written


def test_views_see_the_next_result(fast: hostjit._C.CompiledFunction) -> None:
    first = fast(torch.ones(4))
    row, array = first[1:], first.numpy()
    assert fast(torch.zeros(4)) is first
    assert row.sum() == array.sum() == 0


def test_a_result_that_was_changed_is_let_go(fast: hostjit._C.CompiledFunction) -> None:
    x = torch.arange(4.0)

    def resized(y: torch.Tensor) -> None:
        y.resize_(2)

    def emptied(y: torch.Tensor) -> None:
        y.untyped_storage().resize_(0)

    def larger_storage(y: torch.Tensor) -> None:
        y.untyped_storage().resize_(1 << 16)

    def other_data(y: torch.Tensor) -> None:
        y.data = torch.zeros(4)

    def other_dtype(y: torch.Tensor) -> None:
        y.data = torch.zeros(4, dtype=torch.float64)

    def other_storage(y: torch.Tensor) -> None:
        y.set_(torch.zeros(8)[4:])

    def transposed(y: torch.Tensor) -> None:
        y.as_strided_((4,), (0,))

    def gradient(y: torch.Tensor) -> None:
        y.requires_grad_()

    def shared(y: torch.Tensor) -> None:
        y.share_memory_()

    for change in (
        resized,
        emptied,
        larger_storage,
        other_data,
        other_dtype,
        other_storage,
        transposed,
        gradient,
        shared,
    ):
        before = fast(x)
        change(before)
        kept = before.detach().clone() if before.untyped_storage().nbytes() >= 8 else None
        after = fast(x + 1)
        assert after is not before, change
        assert_close(after, 2 * (x + 1))
        if kept is not None:
            assert_close(before.detach(), kept)
        assert fast(x) is after


def test_lazy_clones_stay(fast: hostjit._C.CompiledFunction) -> None:
    first = fast(torch.ones(4))
    clone = torch._lazy_clone(first)
    fast(torch.zeros(4))
    assert clone.sum() == 8


def test_autograd_notices(fast: hostjit._C.CompiledFunction) -> None:
    first = fast(torch.ones(4))
    weight = torch.ones(4, requires_grad=True)
    with torch.enable_grad():
        loss = (first * weight).sum()
    fast(torch.zeros(4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_modes_have_their_own(fast: hostjit._C.CompiledFunction) -> None:
    first = fast(torch.ones(4))
    with torch.inference_mode():
        inference = fast(torch.ones(4))
        assert inference.is_inference()
        assert fast(torch.ones(4)) is inference
    assert fast(torch.ones(4)) is first


def test_each_thread_gets_new_ones(fast: hostjit._C.CompiledFunction) -> None:
    first = fast(torch.ones(4))
    others: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: others.extend(fast(torch.zeros(4)) for _ in range(2)))
    thread.start()
    thread.join()
    assert others[0] is others[1]
    assert others[0] is not first
    assert_close(first, torch.full((4,), 2.0))
    assert fast(torch.ones(4)) is not others[0]
    assert others[0].sum() == 0


def test_results_of_operators_are_new() -> None:
    fast = hostjit.compile(lambda x: torch.sort(x).values, reuse_outputs=True)
    first = fast(torch.tensor([3.0, 1.0]))
    assert_close(fast(torch.tensor([5.0, 4.0])), torch.tensor([4.0, 5.0]))
    assert_close(first, torch.tensor([1.0, 3.0]))


def test_programs_and_decorators() -> None:
    text = """
program @copies(%x: tensor<f32, [4], cpu>) {
  %y = allocate() : tensor<f32, [4], cpu>
  copy(source=%x, out=%y)
  return %y
}
"""
    fast = hostjit.compile(text, reuse_outputs=True)
    assert fast(torch.ones(4)) is fast(torch.ones(4))

    @hostjit.compile(reuse_outputs=True)
    def decorated(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert decorated(torch.ones(4)) is decorated(torch.ones(4))


class Answer:
    """A result that only Python code can make."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


class Remembering(nn.Module):
    last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x + x
        return self.last


def test_results_of_python_code() -> None:
    fast = hostjit.compile(lambda x: Answer(x + x), reuse_outputs=True)
    first = fast(torch.ones(4))
    second = fast(torch.full((4,), 3.0))
    assert second is not first
    assert second.value is first.value
    assert_close(first.value, torch.full((4,), 6.0))


def test_what_objects_keep_is_new() -> None:
    model = Remembering()
    fast = hostjit.compile(model, reuse_outputs=True)
    fast(torch.ones(4))
    kept = model.last
    fast(torch.zeros(4))
    assert kept is not None
    assert_close(kept, torch.full((4,), 2.0))


@pytest.mark.filterwarnings("ignore:hostjit")
def test_what_code_between_parts_keeps_is_new() -> None:
    seen: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + x
        torch._dynamo.graph_break()
        seen.append(y)
        return y + 1

    fast = hostjit.compile(function, reuse_outputs=True)
    for value in range(3):
        fast(torch.full((4,), float(value)))
    assert [float(y[0]) for y in seen] == [0.0, 2.0, 4.0]
