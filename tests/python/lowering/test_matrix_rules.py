# SPDX-License-Identifier: Apache-2.0
"""Factorizations of small matrices, and what is solved with them: kernels of both runtimes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from against_eager import RUNTIMES, check_compiled
from torch import Tensor, linalg

import hostjit

Function = Callable[..., Any]
DTYPES = (torch.float32, torch.float64)
SHAPES = ((1, ()), (2, ()), (4, ()), (5, ()), (16, ()), (32, ()), (3, (2, 2)))
# Of float32, the last bits of what is solved with a matrix are those of another order of sums.
TOLERANCES = {torch.float32: {"rtol": 2e-3, "atol": 2e-3}, torch.float64: {}}


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def regular(size: int, *batch: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*batch, size, size, dtype=dtype) + 2 * torch.eye(size, dtype=dtype)


def positive(size: int, *batch: int, dtype: torch.dtype = torch.float32) -> Tensor:
    matrix = torch.randn(*batch, size, size, dtype=dtype)
    return matrix @ matrix.mT + torch.eye(size, dtype=dtype)


# Of a matrix, one that is positive definite, and the right sides of equations.
CASES: dict[str, Function] = {
    "solve": lambda a, s, b: linalg.solve(a, b),
    "solve with a transposed": lambda a, s, b: linalg.solve(a.mT, b),
    "solve for a vector": lambda a, s, b: linalg.solve(a, b[..., 0]),
    "solve from the right": lambda a, s, b: linalg.solve(a, b.mT, left=False),
    "solve_ex": lambda a, s, b: torch.ops.aten._linalg_solve_ex(a, b),
    "inv": lambda a, s, b: linalg.inv(a),
    "inv of a transposed": lambda a, s, b: linalg.inv(a.mT),
    "det": lambda a, s, b: torch.ops.aten._linalg_det(a),
    "det of a transposed": lambda a, s, b: torch.ops.aten._linalg_det(a.mT),
    "slogdet": lambda a, s, b: torch.ops.aten._linalg_slogdet(a),
    "slogdet of a transposed": lambda a, s, b: torch.ops.aten._linalg_slogdet(a.mT),
    "lu_factor": lambda a, s, b: linalg.lu_factor(a),
    "lu_factor of a transposed": lambda a, s, b: linalg.lu_factor(a.mT),
    "lu_solve": lambda a, s, b: linalg.lu_solve(*linalg.lu_factor(a), b),
    "lu_solve of an adjoint": lambda a, s, b: linalg.lu_solve(
        *linalg.lu_factor(a), b, adjoint=True
    ),
    "lu_solve from the right": lambda a, s, b: linalg.lu_solve(
        *linalg.lu_factor(a), b.mT, left=False
    ),
    "lu_solve from the right of an adjoint": lambda a, s, b: linalg.lu_solve(
        *linalg.lu_factor(a), b.mT, left=False, adjoint=True
    ),
    "cholesky": lambda a, s, b: linalg.cholesky(s),
    "cholesky of the upper triangle": lambda a, s, b: linalg.cholesky(s.triu(), upper=True),
    "cholesky of the lower triangle": lambda a, s, b: linalg.cholesky(s.tril()),
    "cholesky_solve": lambda a, s, b: torch.cholesky_solve(b, linalg.cholesky(s)),
    "cholesky_inverse": lambda a, s, b: torch.cholesky_inverse(s),
    "cholesky_inverse of an upper triangle": lambda a, s, b: torch.cholesky_inverse(s, upper=True),
    "cholesky_solve of an upper triangle": lambda a, s, b: torch.cholesky_solve(
        b, linalg.cholesky(s).mT, upper=True
    ),
    "solve_triangular, upper": lambda a, s, b: linalg.solve_triangular(s, b, upper=True),
    "solve_triangular, lower": lambda a, s, b: linalg.solve_triangular(s, b, upper=False),
    "solve_triangular, upper, from the right": lambda a, s, b: linalg.solve_triangular(
        s, b.mT, upper=True, left=False
    ),
    "solve_triangular, lower, from the right": lambda a, s, b: linalg.solve_triangular(
        s, b.mT, upper=False, left=False
    ),
    "solve_triangular with ones": lambda a, s, b: linalg.solve_triangular(
        a * 0.1, b, upper=True, unitriangular=True
    ),
    "solve_triangular of one matrix": lambda a, s, b: linalg.solve_triangular(
        s[(0,) * (s.dim() - 2)], b, upper=True
    ),
}


def _is_all_kernels(program: str) -> bool:
    """Whether nothing is called but a check that has found an error."""
    calls = [line for line in program.splitlines() if "aten_call" in line]
    return all("_linalg_check_errors" in line for line in calls)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str, dtype: torch.dtype, runtime: str) -> None:
    tolerances: dict[str, float] = TOLERANCES[dtype]
    for size, batch in SHAPES:
        given = regular(size, *batch, dtype=dtype), positive(size, *batch, dtype=dtype)
        sides = torch.randn(*batch, size, 3, dtype=dtype)
        compiled = hostjit.compile(CASES[name], runtime=runtime)
        actual, expected = compiled(*given, sides), CASES[name](*given, sides)
        torch.testing.assert_close(actual, expected, check_stride=True, **tolerances)
        assert _is_all_kernels(compiled.host_ir())


@pytest.mark.parametrize("name", ["solve", "inv", "det", "cholesky", "lu_factor", "slogdet"])
def test_gradients(name: str) -> None:
    def loss(a: Tensor, s: Tensor, b: Tensor) -> Tensor:
        found = CASES[name](a, s, b)
        return sum((x * x).sum() for x in torch.utils._pytree.tree_leaves(found) if x.requires_grad)  # type: ignore[return-value]

    with torch.enable_grad():
        given = regular(4, dtype=torch.float64), positive(4, dtype=torch.float64)
        sides = torch.randn(4, 3, dtype=torch.float64)
        leaves = [x.requires_grad_() for x in (*given, sides)]
        expected = torch.autograd.grad(loss(*leaves), leaves, allow_unused=True)
        actual = torch.autograd.grad(hostjit.compile(loss)(*leaves), leaves, allow_unused=True)
    torch.testing.assert_close(actual, expected)


SINGULAR: dict[str, tuple[Function, Tensor]] = {
    "inv": (linalg.inv, torch.tensor([[1.0, 2.0], [2.0, 4.0]])),
    "inv of zeros": (linalg.inv, torch.zeros(3, 3)),
    "inv of a batch": (linalg.inv, torch.stack([torch.eye(2), torch.ones(2, 2)])),
    "solve": (lambda a: linalg.solve(a, torch.ones(2)), torch.ones(2, 2)),
    "cholesky": (linalg.cholesky, torch.tensor([[1.0, 2.0], [2.0, 1.0]])),
    "cholesky of a batch": (linalg.cholesky, torch.stack([torch.eye(2), -torch.eye(2)])),
    "cholesky of NaN": (linalg.cholesky, torch.full((2, 2), float("nan"))),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", SINGULAR)
def test_errors_are_those_of_eager(name: str, runtime: str) -> None:
    function, matrix = SINGULAR[name]
    with pytest.raises(linalg.LinAlgError) as expected:
        function(matrix)
    compiled = hostjit.compile(function, runtime=runtime, fallback=False)
    for _ in range(2):
        with pytest.raises(linalg.LinAlgError) as actual:
            compiled(matrix)
        assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize(
    "matrix",
    [
        torch.zeros(3, 3),
        torch.tensor([[0.0, 1.0], [0.0, 2.0]]),
        torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]),
        torch.full((2, 2), float("nan")),
        torch.tensor([[float("inf"), 1.0], [1.0, 1.0]]),
    ],
)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_found_wrong_without_a_check(matrix: Tensor, runtime: str) -> None:
    def found(a: Tensor) -> tuple[Tensor, ...]:
        made, _, info = linalg.lu_factor_ex(a)
        return made, info, linalg.det(a), *linalg.slogdet(a)

    compiled = hostjit.compile(found, runtime=runtime, fallback=False)
    torch.testing.assert_close(compiled(matrix), found(matrix), equal_nan=True)


def test_pivots_without_a_finite_reciprocal() -> None:
    matrix = torch.tensor([[5e-39, 1.0], [1e-39, 2.0]])
    factors, _ = hostjit.compile(linalg.lu_factor)(matrix)
    torch.testing.assert_close(factors, torch.tensor([[5e-39, 1.0], [0.2, 1.8]]))


def test_factors_have_the_bits_of_the_librarys_order() -> None:
    """Nothing is multiplied and added in one rounding, and sums are in order."""
    matrix = regular(6)
    made = matrix.clone()
    for k in range(6):
        place = k + int(made[k:, k].abs().argmax())
        made[[k, place]] = made[[place, k]]
        made[k + 1 :, k] *= 1 / made[k, k]
        made[k + 1 :, k + 1 :] -= made[k + 1 :, k, None] * made[k, None, k + 1 :]
    factors, _ = hostjit.compile(linalg.lu_factor)(matrix)
    assert torch.equal(factors, made)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (linalg.inv, regular(33)),
        (linalg.inv, regular(16, 20)),
        (linalg.inv, regular(3).to(torch.complex64)),
        (linalg.inv, torch.zeros(0, 0)),
        (lambda a: linalg.solve(a, torch.ones(4, 3, 2)), regular(3)),
        (lambda a: linalg.inv_ex(a, check_errors=True), regular(3)),
    ],
)
def test_others_are_left_to_libraries(function: Function, given: Tensor) -> None:
    compiled = hostjit.compile(function, fallback=False)
    torch.testing.assert_close(compiled(given), function(given))
    assert not _is_all_kernels(compiled.host_ir())


def test_sizes_that_only_calls_tell_are_left_to_libraries() -> None:
    compiled = hostjit.compile(linalg.inv, dynamic_shapes={"A": {0: "n", 1: "n"}}, fallback=False)
    for size in (3, 5, 40):
        matrix = regular(size, dtype=torch.float64)
        torch.testing.assert_close(compiled(matrix), linalg.inv(matrix))


def test_nothing_is_written_ahead_of_a_check_that_fails() -> None:
    def update(state: Tensor, matrix: Tensor) -> Tensor:
        state[1] = linalg.inv(matrix).sum()
        return state * 2

    compiled = hostjit.compile(update, fallback=False)
    state = torch.zeros(3)
    with pytest.raises(linalg.LinAlgError):
        compiled(state, torch.ones(2, 2))
    assert torch.equal(state, torch.zeros(3))
    torch.testing.assert_close(compiled(state, torch.eye(2)), torch.tensor([0.0, 4.0, 0.0]))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("rows", [1, 3, 6])
@pytest.mark.parametrize("columns", [1, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_eye(rows: int, columns: int, dtype: torch.dtype, runtime: str) -> None:
    def made(x: Tensor) -> tuple[Tensor, ...]:
        found = torch.eye(rows, columns, dtype=dtype)
        return found, found * x, found.mT, torch.eye(rows) + x

    check_compiled(made, torch.tensor(2.0), runtime=runtime)


TRIANGLES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "lower": lambda x, diagonal: x.tril(diagonal),
    "upper": lambda x, diagonal: x.triu(diagonal),
    "lower of a transposed": lambda x, diagonal: x.mT.tril(diagonal),
    "of a sum": lambda x, diagonal: (x + x).triu(diagonal).sum(-1),
    "mask": lambda x, diagonal: (x != 0).tril(diagonal),
}


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", TRIANGLES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_triangles(name: str, dtype: torch.dtype, runtime: str) -> None:
    for shape in ((1, 1), (4, 4), (3, 6), (6, 3), (2, 3, 4)):
        given = torch.randint(1, 9, shape).to(dtype)
        for diagonal in (0, 1, -2):
            function = functools.partial(TRIANGLES[name], diagonal=diagonal)
            check_compiled(function, given, runtime=runtime, fused="sum" not in name)


def test_triangles_of_large_matrices_are_left_to_aten() -> None:
    check_compiled(lambda x: x.tril(), torch.randn(300, 300), fused=False)
