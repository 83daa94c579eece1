# SPDX-License-Identifier: Apache-2.0
"""Elements taken by flipping and by index: kernels of both runtimes against eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES, check_compiled
from torch import Tensor
from torch.nn import functional

import hostjit

Function = Callable[..., Any]
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
EXACT = {"rtol": 0, "atol": 0}


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def source(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randint(0, 100, shape or (20, 6)).to(dtype)


def index(*numbers: Any, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(numbers, dtype=dtype)


X = torch.arange(120.0).reshape(20, 6)
CUBE = torch.arange(120.0).reshape(4, 5, 6)
ROWS, SQUARE = index(3, 0, 3, 19), index([1, 0, 4], [2, 2, 3])

CASES: dict[str, tuple[Function, tuple[Tensor, ...]]] = {
    "flip": (lambda x: x.flip(0), (X,)),
    "flip both": (lambda x: x.flip(0, 1), (X,)),
    "flip the middle": (lambda x: x.flip(1), (CUBE,)),
    "flip twice": (lambda x: x.flip(0).flip(-1), (CUBE,)),
    "flip no dims": (lambda x: x.flip(()), (CUBE,)),
    "flip nothing": (lambda x: x.flip(0), (X[:0],)),
    "flip a transposed": (lambda x: x.flip(1) * 2, (CUBE.permute(2, 0, 1),)),
    "flip an expanded": (lambda x: x.flip(0) + x, (X[:, :1].expand(20, 6),)),
    "flip a slice": (lambda x: x[1:, ::2].flip(0, 1), (X,)),
    "flip a result": (lambda x: (x + 1).flip(0) - x, (X,)),
    "flip a flip of a sum": (lambda x: x.sum(1).flip(0), (X,)),
    "flip, then sum": (lambda x: (x.flip(0) * x).sum(1), (X,)),
    "flip, then sum columns": (lambda x: (x.flip(0) * x).sum(0), (X,)),
    "embedding": (functional.embedding, (ROWS, X)),
    "embedding of more dims": (functional.embedding, (SQUARE, X)),
    "embedding of no dims": (functional.embedding, (index(3)[0], X)),
    "embedding of nothing": (functional.embedding, (ROWS[:0], X)),
    "embedding by int32": (functional.embedding, (SQUARE.int(), X)),
    "embedding with padding": (lambda i, w: functional.embedding(i, w, padding_idx=3), (ROWS, X)),
    "embedding of a transposed": (lambda i, w: functional.embedding(i, w.t()), (SQUARE, X)),
    "embedding by a transposed": (lambda i, w: functional.embedding(i.t(), w) + 1, (SQUARE, X)),
    "embedding by an expanded": (
        lambda i, w: functional.embedding(i.expand(3, 4), w).tanh(),
        (ROWS, X),
    ),
    "embedding with positions": (
        lambda i, w: functional.embedding(i, w) + functional.embedding(torch.arange(4), w),
        (ROWS, X),
    ),
    "embedding normalised": (
        lambda i, w: functional.layer_norm(functional.embedding(i, w), (6,)),
        (ROWS, X),
    ),
    "embedding summed": (lambda i, w: functional.embedding(i, w).sum(1), (SQUARE, X)),
    "embedding by computed rows": (lambda i, w: functional.embedding(i % 7 + 1, w), (ROWS, X)),
    "gather": (lambda x, i: x.gather(1, i), (X, SQUARE)),
    "gather rows": (lambda x, i: x.gather(-2, i).exp(), (X / 100, SQUARE)),
    "gather of a cube": (lambda x, i: x.gather(1, i), (CUBE, SQUARE[None].expand(3, 2, 3))),
    "gather of a result": (lambda x, i: (x * 2).gather(1, i), (X, SQUARE)),
    "gather by a result": (lambda x, i: x.gather(1, (i + 1) % 5) * i, (X, SQUARE)),
    "gather by a transposed": (lambda x, i: x.gather(1, i.t()), (X.t(), SQUARE)),
    "gather by an argmax": (lambda x: x.gather(1, x.argmax(1, keepdim=True)), (X,)),
    "gather in a loss": (
        lambda x, i: -functional.log_softmax(x, 1).gather(1, i).mean(),
        (X / 100, torch.arange(20)[:, None] % 6),
    ),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), (X, torch.arange(20)[:, None])),
    "index_select": (lambda x, i: x.index_select(0, i), (X, ROWS)),
    "index_select columns": (lambda x, i: x.index_select(1, i) + 1, (X, index(5, 0, 5))),
    "index_select inside": (lambda x, i: x.index_select(-2, i), (CUBE, index(4, 0))),
    "index_select by int32": (lambda x, i: x.index_select(0, i.int()), (X, ROWS)),
    "index_select nothing": (lambda x, i: x.index_select(0, i[:0]), (X, ROWS)),
    "index_select of a vector": (lambda x, i: x.index_select(0, i), (X[:, 0], ROWS)),
    "index": (lambda x, i: x[i], (X, index(-1, 3, -20, 19))),
    "index by a matrix": (lambda x, i: x[i] * 2, (X, SQUARE)),
    "index by int32": (lambda x, i: x[i], (X, ROWS.int() - 20)),
    "index columns": (lambda x, i: x[:, i], (X, index(5, -6, 0))),
    "index inside": (lambda x, i: x[:, i - 3].exp(), (CUBE / 100, SQUARE)),
    "index two dims": (lambda x, i: x[i, i - 5], (X, SQUARE)),
    "index two dims by one another": (lambda x, i, j: x[:, i, j], (CUBE, SQUARE, index([1], [5]))),
    "index dims apart": (lambda x, i: x[i % 4, :, i - 2], (CUBE, index(0, 1, 3))),
    "index the diagonal": (lambda x, i: x[torch.arange(4), i], (X, index(0, 5, -1, 2))),
    "index of a result by itself": (lambda i: i[i], (index(1, 2, 0),)),
    "index a slice": (lambda x, i: x[2:, 1::2][i], (X, SQUARE)),
    "index of an index": (lambda x, i: x[i][i % 2], (X, SQUARE)),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", CASES)
def test_case(name: str, runtime: str) -> None:
    function, arguments = CASES[name]
    check_compiled(function, *arguments, runtime=runtime, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_element_types(dtype: torch.dtype, runtime: str) -> None:
    def function(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        rows = (functional.embedding(i[0], x), x[i], x.index_select(1, i[1]))
        return (*rows, x.gather(0, i), x.flip(0), x.flip(0, 1))

    check_compiled(function, source(dtype=dtype), SQUARE, runtime=runtime, **EXACT)


def error_of(function: Function, *arguments: Tensor) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        function(*arguments)
    return type(caught.value), str(caught.value)


WRONG: dict[str, tuple[Function, Tensor, Tensor]] = {
    "embedding": (lambda x, i: functional.embedding(i, x), index([1, 20]), index([3, -1])),
    "embedding by int32": (lambda x, i: functional.embedding(i.int(), x), index(20), index(-7)),
    "embedding normalised": (
        lambda x, i: functional.layer_norm(functional.embedding(i, x), (6,)),
        index(1, 20),
        index(-1),
    ),
    "index_select": (lambda x, i: x.index_select(0, i), index(4, 20), index(-1)),
    "index_select columns": (lambda x, i: x.index_select(1, i), index(4, 6, 7), index(-9)),
    "index_select of a vector": (lambda x, i: x[:, 1].index_select(0, i), index(20), index(-1)),
    "gather": (lambda x, i: x.gather(1, i[:, None]), index(0, 6, 9), index(5, -1)),
    "gather rows": (lambda x, i: x.gather(0, i[:, None]).exp(), index(0, 20, 29), index(0, -20)),
    "gather, then sum": (lambda x, i: x.gather(1, i[:, None]).sum(), index(0, 6), index(-6)),
    "index": (lambda x, i: x[i], index(0, 20, 21), index(-20, -21, 20)),
    "index by int32": (lambda x, i: x[i.int()], index(0, 20, 21), index(-21)),
    "index columns": (lambda x, i: x[:, i] + 1, index(0, 6), index(-7)),
    "index two dims": (lambda x, i: x[i, i - 6], index(12), index(-1)),
    "index two dims at points": (lambda x, i: x[i, i.flip(0)], index(0, 20), index(6, -21)),
    "far away": (lambda x, i: x[i], index(2**62), index(-(2**63))),
    "embedding far away": (
        lambda x, i: functional.embedding(i, x),
        index(2**63 - 1),
        index(-(2**63)),
    ),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", WRONG)
def test_indices_out_of_bounds_raise_what_eager_raises(name: str, runtime: str) -> None:
    function, above, below = WRONG[name]
    x = source()
    compiled = hostjit.compile(function, runtime=runtime)
    for wrong in (above, below):
        right = torch.zeros_like(wrong)
        for _ in range(2):
            assert error_of(compiled, x, wrong) == error_of(function, x, wrong)
            torch.testing.assert_close(compiled(x, right), function(x, right))
    assert "aten_call" not in compiled.host_ir()


def test_an_error_says_where_it_comes_from() -> None:
    compiled = hostjit.compile(lambda x, i: x[i] + 1)
    with pytest.raises(IndexError) as caught:
        compiled(source(), index(33))
    (note,) = caught.value.__notes__
    assert "launch_kernel" in note
    assert "test_selection_rules.py" in note


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_empty_sources_are_left_to_eager(runtime: str) -> None:
    for function, x, i in (
        (lambda x, i: x[i], torch.empty(0, 4), index(0)),
        (lambda x, i: x.index_select(0, i), torch.empty(4, 0), index(9)),
    ):
        compiled = hostjit.compile(function, runtime=runtime)
        assert error_of(compiled, x, i)[0] is error_of(function, x, i)[0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x.flip(0) * 2,
        lambda x, i: x[i].exp(),
        lambda x, i: functional.embedding(i, x).sum(1),
        lambda x, i: x.gather(0, i[:, None].expand(-1, 64)).sum(),
    ],
)
def test_threads_share_the_work(function: Function) -> None:
    x, i = torch.rand(3000, 64), torch.randint(0, 3000, (3000,))
    compiled = hostjit.compile(function)
    before = torch.get_num_threads()
    try:
        for count in (2, 1, 3):
            torch.set_num_threads(count)
            torch.testing.assert_close(compiled(x, i), function(x, i))
    finally:
        torch.set_num_threads(before)
    assert "grid=" in compiled.host_ir()


@pytest.mark.parametrize("place", [0, 1499, 2999])
def test_an_error_leaves_a_parallel_region(place: int) -> None:
    x, i = torch.rand(3000, 64), torch.randint(0, 3000, (3000,))
    compiled = hostjit.compile(lambda x, i: x[i].exp())
    wrong = i.clone()
    wrong[place:] = 3000 + torch.arange(3000 - place)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for _ in range(3):
            with pytest.raises(IndexError, match=r"^index 3000 is out of bounds"):
                compiled(x, wrong)
            torch.testing.assert_close(compiled(x, i), x[i].exp())
    finally:
        torch.set_num_threads(before)


def test_neighbours_are_one_kernel() -> None:
    embed = hostjit.compile(
        lambda i, w, p: functional.layer_norm(functional.embedding(i, w) + p, (6,)).relu()
    )
    embed(ROWS, X, X[:4])
    assert embed.host_ir().count("launch_kernel") == 1
    loss = hostjit.compile(lambda x, i: -x.gather(1, i[:, None]).mean())
    loss(X, index(*range(6), *range(6), *range(6), 0, 1))
    assert loss.host_ir().count("launch_kernel") == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i].exp(),
        lambda x, i: functional.embedding(i[:, 0], x) * 2,
        lambda x, i: x.gather(1, i).tanh(),
        lambda x, i: x.flip(1) + x,
    ],
)
def test_checks_keep_loops_vectorised(function: Function) -> None:
    x, i = torch.rand(64, 64), torch.randint(0, 64, (64, 64))
    compiled = hostjit.compile(function)
    compiled(x, i)
    text = compiled.llvm_ir()
    assert "store <" in text or "llvm.memcpy" in text
