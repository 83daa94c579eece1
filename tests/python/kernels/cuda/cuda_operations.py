# SPDX-License-Identifier: Apache-2.0
"""The operations of the table with special operands and eager's results: a kernel for each type.

Each operation has an output of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from mcjit import TORCH_DTYPES
from special_values import pair, special
from test_operations import BINARY, INTEGER_DIVISIONS, PARAMETRIC, UNARY, element_types, widen

from hostjit.kernels import DType, KernelBuilder, PointwiseKernel, result_dtype

Reference = Callable[..., torch.Tensor]


def exact_fmod(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sleef's, which eager has on CPUs, is NaN where the quotient overflows; CUDA's is not."""
    if x.is_cuda:
        return torch.fmod(x, y)
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.fmod(widen(x).numpy(), widen(y).numpy()))


def exact_remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    modulus = exact_fmod(x, y)
    signs_differ = (modulus != 0) & ((y < 0) != (modulus < 0))
    return torch.where(signs_differ, modulus + widen(y), modulus)


# Name, constant operands after the tensors, number of tensors, reference.
Entry = tuple[str, tuple[float, ...], int, Reference]
_EXACT = {"fmod": exact_fmod, "remainder": exact_remainder}
TABLES: dict[str, list[Entry]] = {
    "unary": [(name, (), 1, reference) for name, reference in UNARY.items()],
    "binary": [(name, (), 2, reference) for name, reference in (BINARY | _EXACT).items()],
    "parametric": [(name, numbers, 1, reference) for name, numbers, reference in PARAMETRIC],
    "where": [("where", (), 3, torch.where)],
}


@dataclass(frozen=True)
class OperationCase:
    """The operations of one kind on one type."""

    kind: str
    dtype: DType

    def __str__(self) -> str:
        return f"{self.kind}_{self.dtype.value}"

    def entries(self) -> list[Entry]:
        if self.kind == "parametric" and self.dtype is DType.U8:
            return []  # their numbers are negative
        return [entry for entry in TABLES[self.kind] if self.dtype in element_types(entry[0])]

    def operand_types(self) -> list[DType]:
        if self.kind == "where":
            return [DType.BOOL, self.dtype, self.dtype]
        return [self.dtype] * (2 if self.kind == "binary" else 1)

    def tensors(self) -> list[torch.Tensor]:
        if self.kind in ("unary", "parametric"):
            return [special(TORCH_DTYPES[self.dtype])]
        x, y = pair(TORCH_DTYPES[self.dtype])
        condition = torch.arange(x.numel()) % 3 == 0
        return [condition, x, y] if self.kind == "where" else [x, y]

    def result_type(self, entry: Entry) -> DType:
        name, numbers, arity, _ = entry
        register = self.dtype.register
        operands = (register,) * (arity + len(numbers))
        if name == "where":
            operands = (DType.BOOL, *operands[1:])
        result = result_dtype(name, operands)
        return self.dtype if result is register else result

    def results(self) -> list[torch.Tensor]:
        """Memory for the results."""
        like = self.tensors()[-1]
        types = [self.result_type(entry) for entry in self.entries()]
        return [torch.empty_like(like, dtype=TORCH_DTYPES[type_]) for type_ in types]

    def kernel(self) -> PointwiseKernel:
        builder = KernelBuilder(str(self), (self.tensors()[0].numel(),))
        loaded = [builder.load(builder.input(one), (1,)) for one in self.operand_types()]
        for entry in self.entries():
            values = loaded + [builder.constant(self.dtype, number) for number in entry[1]]
            output = builder.output(self.result_type(entry))
            builder.store(output, builder.apply(entry[0], *values), (1,))
        return builder.build()

    def check(self, tensors: list[torch.Tensor], found: list[torch.Tensor]) -> None:
        """Compare results with eager's, on the device of the tensors."""
        for entry, actual in zip(self.entries(), found, strict=True):
            self._check(entry, tensors, actual)

    def _check(self, entry: Entry, tensors: list[torch.Tensor], actual: torch.Tensor) -> None:
        name, _, _, reference = entry
        if name in INTEGER_DIVISIONS and self.dtype.is_integer:
            keep = (tensors[1] != 0) & (tensors[1] != -1)
            tensors, actual = [tensor[keep] for tensor in tensors], actual[keep]
        if name.startswith("addc"):
            keep = tensors[0].isfinite()
            tensors, actual = [tensors[0][keep]], actual[keep]
        try:
            expected = reference(*tensors)
        except (RuntimeError, NotImplementedError):
            return  # eager has no such operation
        tolerance = {"rtol": 1e-3, "atol": 1e-5} if self.dtype is DType.F16 else {}
        torch.testing.assert_close(
            actual,
            expected.to(actual.dtype),
            equal_nan=True,
            msg=lambda text: f"{name}: {text}",
            **tolerance,
        )


_ALL = [OperationCase(kind, dtype) for kind in TABLES for dtype in DType]
CASES = [case for case in _ALL if case.entries()]
