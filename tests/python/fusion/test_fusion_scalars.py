# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of scalars, and the dtypes that operations compute in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hostjit
from hostjit import DataType, FusionDefinition


def test_arithmetic_of_scalars_is_known_or_computed(runtime: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        n, s = fd.define_scalar(None, DataType.Int), fd.define_scalar(None, DataType.Double)
        o = fd.ops
        constant = o.mul(o.add(fd.define_scalar(3), 4), o.sub(2, 5))
        assert constant.value == -21 and constant.dtype() is DataType.Int
        for tensor in (
            o.mul(x, constant),
            o.add(x, o.div(o.neg(n), 2)),
            o.add(x, o.mod(o.neg(n), 4)),
            o.mul(x, o.exp(o.neg(s))),
            o.add(x, o.truediv(n, s)),
            o.where(o.gt(s, 1.0), x, o.sqrt(s)),
            o.full([o.cast(o.mul(o.reciprocal(4.0), 8), DataType.Int)], 3, DataType.Int),
            o.full([o.maximum(n, 2), o.add(o.fmod(x.size(0), 3), 1)], 1.0, DataType.Float),
        ):
            fd.add_output(tensor)
    compiled = hostjit.compile(fd, runtime=runtime)
    x = torch.randn(4)
    for n, s in ((7, 2.5), (5, 0.5), (9, 1.25)):
        expected = [
            x * -21,
            x - n // 2,
            x - n % 4,
            x * torch.tensor(-s).exp(),
            x + n / s,
            x if s > 1.0 else torch.full((4,), s).sqrt(),
            torch.tensor([3, 3]),
            torch.ones(n, 2),
        ]
        torch.testing.assert_close(compiled(x, n, s), expected)
    assert len(compiled.specializations) == 1


def test_sizes_that_are_computed_with_floats() -> None:
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([-1]), fd.define_scalar(None, DataType.Int)
        o = fd.ops
        half = o.cast(o.mul(o.truediv(n, 4), 2.0), DataType.Int)
        more = o.where(o.gt(half, 3), half, o.add(half, o.cast(o.ne(n, 4), DataType.Int)))
        fd.add_output(o.slice(x, [0], [more]))
        fd.add_output(o.full([o.mul(o.reciprocal(n), 20)], 1.0, DataType.Float))
    for number, size in ((4, 2), (5, 3), (6, 4), (9, 4), (20, 10)):
        first, second = fd.execute([torch.ones(12), number])
        assert first.shape == (size,) and second.shape == (20 // number,)


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (DataType.Half, DataType.Half, DataType.Float),
        (DataType.Half, DataType.BFloat16, DataType.Float),
        (DataType.BFloat16, DataType.Double, DataType.Double),
        (DataType.Int, DataType.Float, DataType.Float),
        (DataType.Int32, DataType.Int, DataType.Int),
        (DataType.Bool, DataType.Int32, DataType.Int32),
        (DataType.Int, 2.0, DataType.Double),
        (DataType.Int32, 2, DataType.Int32),
        (DataType.Bool, 2, DataType.Int),
        (DataType.Float, 2.0, DataType.Float),
        (DataType.Half, 2.0, DataType.Float),
        (DataType.Float, 1j, DataType.ComplexFloat),
        (DataType.Double, 1j, DataType.ComplexDouble),
        (DataType.ComplexFloat, DataType.Double, DataType.ComplexDouble),
    ],
)
def test_dtypes_are_nvfusers(left: DataType, right: Any, common: DataType) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([3], dtype=left)
        y = fd.define_tensor([3], dtype=right) if isinstance(right, DataType) else right
        z = fd.ops.mul(x, y)
        fd.add_output(z)
    assert z.dtype() is common
    a = torch.tensor([0, 1, 3]).to(left.torch_dtype)
    b = torch.tensor([2, 3, 4]).to(right.torch_dtype) if isinstance(right, DataType) else right
    wide = common.torch_dtype
    right_values = b.to(wide) if isinstance(b, torch.Tensor) else torch.tensor(b, dtype=wide)
    found = fd.execute([value for value in (a, b) if isinstance(value, torch.Tensor)])[0]
    torch.testing.assert_close(found, a.to(wide) * right_values)
