# SPDX-License-Identifier: Apache-2.0
"""`as_strided` of arguments: it counts from where their memory begins, and may go past them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "from_memory": lambda x: x.as_strided((2, 2), (2, 1), 3) + 1,
    "from_begin_of_memory": lambda x: x.as_strided((2, 2), (2, 1), 0) * x[:2],
    "from_itself": lambda x: x.as_strided((2, 2), (2, 1)) + 1,
    "past_its_end": lambda x: x.as_strided((30,), (1,)) + 1,
    "of_a_view": lambda x: x[3:].as_strided((2, 2), (2, 1), 1) + 1,
    "of_a_transposed_view": lambda x: x.view(4, 5).t().as_strided((2, 2), (2, 1), 1) + 1,
    "of_a_view_from_itself": lambda x: x[3:].as_strided((2, 2), (2, 1)) + 1,
    "of_another_type": lambda x: x.view(torch.int32).as_strided((2,), (1,), 5) + 1,
    "of_what_is_computed": lambda x: (x + 1)[3:].as_strided((2, 2), (2, 1), 1) + x[:2],
    "as_a_result": lambda x: x.as_strided((2, 2), (2, 1), 3),
    "with_gradients": lambda x: x.clone().requires_grad_().as_strided((2, 2), (2, 1), 3) * 2,
}


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_begin_anywhere_in_their_memory(name: str, first: int, runtime: str) -> None:
    function = FUNCTIONS[name]
    memory = torch.arange(64.0)
    fast = hostjit.compile(function, runtime=runtime)
    for begin in (first, first, 5, 0, 12):
        x = memory[begin : begin + 20]
        assert_close(fast(x), function(x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_of_any_size(runtime: str, dynamic: bool | None) -> None:
    def function(x: Tensor) -> Tensor:
        windows = x.as_strided((len(x) - 3, 4), (1, 1))
        return windows.sum(-1) + x.as_strided((2,), (1,), 1).sum()

    memory = torch.arange(64.0)
    fast = hostjit.compile(function, runtime=runtime, dynamic=dynamic)
    for begin, size in ((0, 10), (0, 11), (4, 12), (9, 13), (0, 14), (20, 11)):
        x = memory[begin : begin + size]
        assert_close(fast(x), function(x))


def test_memory_that_is_too_short(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x.as_strided((30,), (1,)) + 1

    fast = hostjit.compile(function, runtime=runtime)
    long, short = torch.arange(64.0), torch.arange(25.0)
    assert_close(fast(long[:20]), function(long[:20]))
    with pytest.raises(RuntimeError, match="out of bounds"):
        fast(short[:20])


@pytest.mark.parametrize("first", [0, 7])
def test_writes_count_from_the_memory(first: int, runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        x.as_strided((2, 2), (2, 1), 3).add_(1)
        return x * 2

    fast = hostjit.compile(function, runtime=runtime)
    memory, expected = torch.arange(64.0), torch.arange(64.0)
    for begin in (first, 0, 5, 5, 0):
        found = fast(memory[begin : begin + 20])
        assert_close(found, function(expected[begin : begin + 20]))
        assert_close(memory, expected)


@pytest.mark.parametrize("begin", [0, 7])
def test_through_torch_compile(begin: int, runtime: str) -> None:
    function = FUNCTIONS["from_memory"]
    memory = torch.arange(64.0)
    fast = torch.compile(function, backend="hostjit", options={"runtime": runtime})
    for start in (begin, begin, 5, 0):
        x = memory[start : start + 20]
        assert_close(fast(x), function(x))


def test_parameters_that_move_in_their_memory(runtime: str) -> None:
    memory = torch.arange(64.0)
    module = torch.nn.Module()
    module.register_buffer("table", memory[:20])
    module.forward = lambda x: x + module.table.as_strided((2,), (1,), 3)
    fast = hostjit.compile(module, runtime=runtime)
    for begin in (0, 7, 0):
        module.table = memory[begin : begin + 20]
        assert_close(fast(torch.ones(2)), module(torch.ones(2)))
    module.table.data = memory[5:25]
    assert_close(fast(torch.ones(2)), module(torch.ones(2)))


@pytest.mark.parametrize("name", ["from_memory", "from_itself", "of_a_view", "as_a_result"])
def test_within_an_argument_it_is_compiled(name: str, runtime: str) -> None:
    function = FUNCTIONS[name]
    fast = hostjit.compile(function, runtime=runtime, fallback=False)
    for _ in range(3):
        x = torch.randn(20)
        assert_close(fast(x), function(x))
    assert len(fast.specializations) == 1
