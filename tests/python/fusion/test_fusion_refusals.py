# SPDX-License-Identifier: Apache-2.0
"""What a definition refuses, where it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit
from hostjit import DataType, FusionDefinition


def test_values_of_another_definition() -> None:
    with FusionDefinition() as other:
        foreign, number = other.define_tensor([3]), other.define_scalar()
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[3])
        with pytest.raises(hostjit.Error, match=r"ops.add: argument 'rhs' is T0.* of another"):
            fd.ops.add(x, foreign)
        with pytest.raises(hostjit.Error, match=r"ops.add: argument 'lhs' is S1.* of another"):
            fd.ops.add(number, x)
        with pytest.raises(hostjit.Error, match=r"ops.cat: argument 'tensors' is T0.* of another"):
            fd.ops.cat([x, foreign])
        with pytest.raises(hostjit.Error, match=r"add_output: output is T0.* of another"):
            fd.add_output(foreign)


WRONG_USES: list[tuple[Callable[..., Any], str]] = [
    (lambda o, x, y: o.add(x), r"ops.add: missing a required argument: 'rhs'"),
    (lambda o, x, y: o.add(x, "1"), "argument 'rhs' is '1' of type str, expected a scalar"),
    (lambda o, x, y: o.add(x, y), "sizes 5 and 4 in dim -1 do not fit together|sizes 4 and 5"),
    (lambda o, x, y: o.sum(x, [2]), "ops.sum: dim 2 is out of range, expected -2 to 1 for 2 dims"),
    (lambda o, x, y: o.sum(x, [0, -2]), "dim 0 is named more than once"),
    (lambda o, x, y: o.sum(x, []), "no dims to reduce"),
    (lambda o, x, y: o.sum(x, 0.5), "argument 'dims' is 0.5 .*, expected a DataType or"),
    (lambda o, x, y: o.max(x, [0], False, DataType.Half), "has the dtype of its operand"),
    (lambda o, x, y: o.var(x, [0], -1), "correction is -1, expected 0 or more"),
    (lambda o, x, y: o.var_mean(o.cast(x, DataType.Half), [0]), "takes Float or wider"),
    (lambda o, x, y: o.permute(x, [0]), r"dims \[0\] are not all 2 dims"),
    (lambda o, x, y: o.permute(x, [0, 0]), "dims 0 is named more than once"),
    (lambda o, x, y: o.reshape(y, [7]), "has 5 elements, and new_shape 7"),
    (lambda o, x, y: o.reshape(x, [-1, -1]), "more than one -1"),
    (lambda o, x, y: o.reshape(x, [-2]), r"new_shape\[0\] is -2, expected -1 or more"),
    (lambda o, x, y: o.reshape(x, [2.5]), r"new_shape\[0\] has to be an integer"),
    (lambda o, x, y: o.broadcast(y, [True]), "0 times False, expected 1 times"),
    (
        lambda o, x, y: o.broadcast_in_dim(y, [3, 5], [0, 1]),
        "has 2 entries for 2 sizes, expected 1",
    ),
    (lambda o, x, y: o.broadcast_in_dim(y, [3, 6], [1]), "dim 1 has size 5 and cannot have size 6"),
    (lambda o, x, y: o.expand(y, []), "shape has 0 sizes, expected 1 or more"),
    (lambda o, x, y: o.squeeze(y, [0]), "dim 0 of T1.* has size 5, expected 1"),
    (lambda o, x, y: o.slice(y, [-1], [2]), r"start_indices\[0\] is -1"),
    (lambda o, x, y: o.slice(y, [3], [2]), "is 2, less than the start 3"),
    (lambda o, x, y: o.slice(y, [0], [2], [2]), r"strides\[0\] is .*, expected 1"),
    (lambda o, x, y: o.slice(x, [0], [2]), "start_indices has 1 entries, expected 2"),
    (lambda o, x, y: o.cat([]), "takes one tensor or more"),
    (lambda o, x, y: o.cat([x, y]), "does not fit"),
    (lambda o, x, y: o.pad(y, [1]), "pad_widths has 1 entries"),
    (lambda o, x, y: o.pad(y, [1, 1], 2), "value is scalar 2 of DataType.Int, expected one of"),
    (lambda o, x, y: o.stride_order(x, [0]), "has no entry for each dim"),
    (lambda o, x, y: o.where(x, x, x), "the condition has to be of DataType.Bool"),
    (lambda o, x, y: o.bitwise_and(x, x), "takes integers or bools, found DataType.Float"),
    (lambda o, x, y: o.gcd(x, 2), "takes integers, found DataType.Float and DataType.Int"),
    (lambda o, x, y: o.nextafter(o.cast(x, DataType.ComplexFloat), x), "takes Float or Double"),
    (lambda o, x, y: o.imag(x), "takes complex numbers"),
    (lambda o, x, y: o.gather(x, x, 0), "index has to be of integers"),
    (lambda o, x, y: o.gather(x, y, 0), "has 1 dims, expected 2"),
    (lambda o, x, y: o.matmul(x, o.cast(x, DataType.Double)), "differ in dtype"),
    (lambda o, x, y: o.matmul(x, y), "do not fit: 4 and 5 should be equal"),
    (lambda o, x, y: o.linear(x, y), "takes a tensor with dims and a matrix"),
    (lambda o, x, y: o.iota(3, 1.5), "start is scalar 1.5 .*, expected one of DataType.Int"),
    (lambda o, x, y: o.iota(3, step=0), "step is 0"),
    (lambda o, x, y: o.uniform(0.0, 1.0, [2], dtype=DataType.Int), "expected floating point"),
    (lambda o, x, y: o.uniform(0.0, 1.0, [2], rng_seed=1, rng_offset=2), "torch.manual_seed"),
    (lambda o, x, y: o.cumsum(x, 2), "dim 2 is out of range"),
    (
        lambda o, x, y: o.full([2], o.exp(1.0), "f"),
        "argument 'dtype' is 'f'.*, expected a DataType",
    ),
    (lambda o, x, y: o.select(x, o.exp(1.0), 0), "index has to be an integer"),
    (lambda o, x, y: o.cast(x, DataType.Float4_e2m1fn), "has no dtype of PyTorch"),
    (lambda o, x, y: o.sdpfa_fwd(x, x, x), "takes tensors of 4 dims"),
    (lambda o, x, y: o.clamp(o.cast(x, DataType.Int), float("-inf"), 3), "-inf is no DataType.Int"),
    (lambda o, x, y: o.div(3, 0), "3 is divided by 0"),
]


@pytest.mark.parametrize("number", range(len(WRONG_USES)))
def test_operations_refuse_what_they_cannot_take(number: int) -> None:
    use, message = WRONG_USES[number]
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, 4]), fd.define_tensor([5])
        with pytest.raises(hostjit.Error, match=message):
            use(fd.ops, x, y)
        fd.add_output(fd.ops.neg(x))
    torch.testing.assert_close(fd.execute([torch.ones(2, 4), torch.ones(5)])[0], -torch.ones(2, 4))


def test_inputs_that_cannot_be_defined() -> None:
    with FusionDefinition() as fd:
        for arguments, message in (
            ({"shape": [-2]}, r"shape\[0\] is -2, expected -1"),
            ({"shape": [2], "contiguity": [True, True]}, "contiguity has 2 entries, expected 1"),
            ({"shape": [2, 2], "stride_order": [0, 0]}, r"stride_order is \[0, 0\], expected each"),
            ({"shape": [2], "dtype": DataType.Float4_e2m1fn}, "has no dtype of PyTorch"),
        ):
            with pytest.raises(hostjit.Error, match=message):
                fd.define_tensor(**arguments)
        with pytest.raises(hostjit.Error, match="the value is of type str, expected a number"):
            fd.define_scalar("1")
        assert not fd.inputs
        assert [s.dtype() for s in fd.define_vector([3, None], DataType.Int32)] == [
            DataType.Int32,
            DataType.Int32,
        ]
        assert len(fd.inputs) == 1 and not fd.define_scalar(2).is_symbolic()
