# SPDX-License-Identifier: Apache-2.0
"""The dtype in which an operation computes, by nvFuser's rules.

They are PyTorch's (tensors with dims over tensors without over scalars, within a kind of number)
with two differences: Python floats are Double and stay so beside integers, and what is narrower
than Float is computed in Float, with a Float result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from hostjit._C import Error
from hostjit.fusion.data_type import DataType
from hostjit.fusion.values import Operand, Tensor

__all__ = ["common_data_type"]


def common_data_type(
    operands: Sequence[Operand], *, integers_to_float: bool = False, widen: bool = True
) -> DataType:
    """Return the dtype that the operands of an operation are cast to.

    Args:
        operands: of the operation.
        integers_to_float: compute in Float where all are integers or bools.
        widen: compute in Float where the rules give a narrower type.
    """
    found = {operand.dtype() for operand in operands}
    common = found.pop() if len(found) == 1 else _by_categories(operands)
    if integers_to_float and (common.is_integral or common is DataType.Bool):
        return DataType.Float
    return DataType.Float if widen and common.is_narrow else common


def _by_categories(operands: Sequence[Operand]) -> DataType:
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    with_dims = _promoted(tensor.dtype() for tensor in tensors if tensor.ndim)
    without = _promoted(tensor.dtype() for tensor in tensors if not tensor.ndim)
    scalars = _promoted(
        DataType.Float if operand.dtype().is_narrow else operand.dtype()
        for operand in operands
        if not isinstance(operand, Tensor)
    )
    common = _over(with_dims, _over(without, scalars))
    assert common is not None
    return common


def _over(higher: DataType | None, lower: DataType | None) -> DataType | None:
    """The dtype of two categories, of which one decides unless the other has a wider kind."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if lower.is_complex:
        if not higher.is_floating:
            return lower
        return DataType.ComplexDouble if higher is DataType.Double else DataType.ComplexFloat
    if higher.is_floating:
        return higher
    if higher is DataType.Bool or lower.is_floating:
        return _promoted((higher, lower))
    return higher


def _promoted(data_types: Iterable[DataType]) -> DataType | None:
    result: DataType | None = None
    for data_type in data_types:
        if result is None or result is data_type:
            result = data_type
            continue
        try:
            dtype = torch.promote_types(result.torch_dtype, data_type.torch_dtype)
        except RuntimeError as error:
            raise Error(f"{result} and {data_type} have no common dtype: cast one") from error
        result = DataType.of(dtype)
    return result
