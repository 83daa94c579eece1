# SPDX-License-Identifier: Apache-2.0
"""What code reads of tensors in attributes, and of what operators make of them, alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

READS: dict[str, Callable[[Tensor], Any]] = {
    "strides of a sum": lambda v: (v + 1).stride(),
    "strides of a view": lambda v: v.unsqueeze(0).stride(),
    "strides of a copy": lambda v: (v.contiguous().stride(), v.clone().stride()),
    "strides of an empty one": lambda v: torch.empty_like(v).stride(),
    "strides of a stack": lambda v: torch.stack([v, v]).stride(),
    "shape": lambda v: (v.T.shape, torch.cat([v, v]).shape),
    "dtype": lambda v: (torch.ones_like(v).dtype, v.new_ones(2).dtype, v.data.dtype),
    "bytes": lambda v: (v.itemsize, v.nbytes),
    "itself": lambda v: (v.dtype, v.shape, v.stride(), v.numel()),
}


class Holder:
    held: Any = None


def tensors() -> list[Tensor]:
    first = torch.arange(6.0).reshape(2, 3)
    return [
        *(first, first.double(), first.T, first.bool(), torch.ones(1, 3).expand(2, 3)),
        *(first, torch.ones(4, 2)[:, :1], torch.ones(1, 1), torch.zeros(0, 3), first.bfloat16()),
    ]


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("place", ["attribute", "closure"])
@pytest.mark.parametrize("name", READS)
def test_reads(name: str, place: str, compile: Callable[..., Any]) -> None:
    read, holder = READS[name], Holder()

    def of_attribute(x: Tensor, of: Holder) -> Any:
        return x * 2, read(of.held)

    def of_closure(x: Tensor, _: Holder) -> Any:
        return x * 2, read(holder.held)

    fast = compile(of_attribute if place == "attribute" else of_closure)
    with torch.no_grad(), hostjit.knobs(disable="recompile_limit"):
        for index, tensor in enumerate(tensors()):
            holder.held = tensor
            assert fast(torch.ones(2), holder)[1] == read(tensor), index
