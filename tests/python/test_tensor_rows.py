# SPDX-License-Identifier: Apache-2.0
"""Rows of tensors: the tensor that a tuple has the rows of, and copies of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from hostjit import _C

X = torch.arange(24.0).view(4, 6)


@pytest.mark.parametrize(
    "tensor",
    [X, X.t(), X[:, ::2], X[1:], X.view(4, 3, 2), X[:, 0], X.long(), X.double().t()[1:3]],
)
def test_rows_of_a_tensor(tensor: torch.Tensor) -> None:
    found = _C.tensor_of_rows(tensor.unbind(0))
    assert found is not None
    assert found.dtype == tensor.dtype and found.stride() == tensor.stride()
    assert_close(found, tensor)
    found.mul_(2)
    try:
        assert_close(found, tensor)
    finally:
        found.div_(2) if found.is_floating_point() else found.floor_divide_(2)


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (X[0],),
        (X[0], X[2], X[3]),
        (X[0], X[1], X[1]),
        (X[1], X[0]),
        (X[0], X[0]),
        (X[0], X[1], X[2].clone()),
        (X[0], X[1], X[2, :3]),
        (X[0], X[1], X[2].view(torch.int32)),
        (X[0], X[1].t(), 2.0),
        (X[0], torch.nn.Parameter(X[1])),
        (X[0].to_sparse(), X[1]),
        X.clone().requires_grad_().unbind(0),
        X.to(torch.complex64).conj().unbind(0)[:1] + X.to(torch.complex64).unbind(0)[1:],
        X.expand(3, 4, 6).unbind(0),
    ],
)
def test_other_tuples(rows: tuple[Any, ...]) -> None:
    assert _C.tensor_of_rows(rows) is None


@pytest.mark.parametrize("count", [0, 1, 3, 4])
@pytest.mark.parametrize("tensor", [X, X.view(4, 3, 2), X[:, 0].clone(), X.bool(), X[:, :0]])
def test_copies_of_rows(tensor: torch.Tensor, count: int) -> None:
    tensor = tensor.contiguous()
    copies = _C.copies_of_rows(tensor, count)
    assert len(copies) == count
    for copy, row in zip(copies, tensor, strict=False):
        assert not copy.is_inference() and copy._base is None
        assert copy.is_contiguous() and copy.untyped_storage().nbytes() == row.nbytes
        assert_close(copy, row, check_stride=True)


def test_copies_are_of_the_mode() -> None:
    with torch.inference_mode():
        assert _C.copies_of_rows(X, 1)[0].is_inference()


def test_there_are_no_copies_of_what_is_not_there() -> None:
    with pytest.raises(_C.Error, match="copies of 5 rows"):
        _C.copies_of_rows(X, 5)
    with pytest.raises(_C.Error, match="contiguous"):
        _C.copies_of_rows(X.t(), 1)
