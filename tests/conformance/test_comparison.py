# SPDX-License-Identifier: Apache-2.0
"""The comparison sees what it claims to see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.cases import Call
from conformance.comparison import DIFFERS, RAISES, Finding, compare
from conformance.subjects import SUBJECTS, Subject


def judged(right: Callable[..., Any], wrong: Callable[..., Any], *args: Any) -> Finding:
    """Compare, as if `wrong` were what became of compiling `right`."""
    subject = Subject(lambda function: wrong, (("run", contextlib.nullcontext),))
    return compare(Call(right, args or (torch.ones(2, 3),), {}), subject)


def raise_value_error(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("wrong")


def raise_index_error(x: torch.Tensor) -> torch.Tensor:
    raise IndexError("wrong")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (lambda x: x + 1, lambda x: x + 2, "result 0: Tensor-likes are not close"),
        (lambda x: x + 1, lambda x: x.double() + 1, "dtype torch.float64"),
        (lambda x: x + 1, lambda x: (x + 1).T.contiguous().T, "strides (1, 2), expected (3, 1)"),
        (lambda x: x[0], lambda x: x[0].clone(), "shared as ['new'], expected ['argument 0 at 0']"),
        (lambda x: x[0], lambda x: x[1], "['argument 0 at 3'], expected ['argument 0 at 0']"),
        (lambda x: x, lambda x: x[:], "expected ['is argument 0']"),
        (lambda x: [x + 1] * 2, lambda x: [x + 1, x + 1], "expected ['new', 'result 0 at 0']"),
        (lambda x: x.add(1), lambda x: x.add_(1).clone(), "argument 0: Tensor-likes"),
        (lambda x: x.t_() + 1, lambda x: x.T + 1, "argument tensor 0 has shape"),
        (lambda x: x.sum().item(), lambda x: 7.0, "result 0 is 7.0, expected 6.0"),
        (lambda x: (x + 1,), lambda x: [x + 1], "structure"),
        (lambda x: x.cfloat().conj(), lambda x: x.cfloat().conj().resolve_conj(), "conjugate bit"),
    ],
)
def test_a_difference_is_found(
    right: Callable[..., Any], wrong: Callable[..., Any], message: str
) -> None:
    found = judged(right, wrong)
    assert found.kind == DIFFERS
    assert message in found.message


def test_exceptions_compare_by_class() -> None:
    assert judged(raise_value_error, raise_value_error) == Finding()
    for right, wrong in [
        (raise_value_error, raise_index_error),
        (raise_value_error, torch.relu),
        (torch.relu, raise_value_error),
    ]:
        assert judged(right, wrong).kind == RAISES


def test_values_of_a_nondeterministic_operator_do_not_count() -> None:
    entropy = torch.Generator()

    def draw(x: torch.Tensor) -> torch.Tensor:
        entropy.seed()
        return torch.rand(4, generator=entropy)

    assert judged(draw, draw) == Finding()


def test_eager_agrees_with_itself() -> None:
    x = torch.randn(3, 3)
    calls: list[Call] = [
        Call(torch.dropout, (x, 0.5, True), {}),
        Call(torch.Tensor.add_, (x, 1), {}),
        Call(torch.Tensor.to_sparse, (x,), {}),
        Call(torch.Tensor.item, (torch.tensor(float("nan")),), {}),
    ]
    for call in calls:
        assert compare(call, SUBJECTS["eager"]) == Finding()
