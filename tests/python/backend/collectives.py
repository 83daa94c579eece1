# SPDX-License-Identifier: Apache-2.0
"""One process of a group: compares functional collectives, compiled and eager.

    python collectives.py FILE RANK SIZE

`FILE` is where the processes meet.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor
from torch.testing import assert_close

import hostjit

Function = Callable[[Tensor], Any]


def programs(group: dist.ProcessGroup, size: int) -> list[Function]:
    def summed_in_place(x: Tensor) -> Tensor:
        x = x * 2
        dist.all_reduce(x)
        return x + 1

    return [
        lambda x: functional.all_reduce(x * 2, "sum", group) + 1,
        lambda x: functional.wait_tensor(functional.all_reduce(x, "max", group)).exp(),
        lambda x: functional.all_gather_tensor(x.sin(), 0, group) * 2,
        lambda x: functional.reduce_scatter_tensor(torch.cat([x] * size), "sum", 0, group) + 1,
        lambda x: functional.all_to_all_single(torch.cat([x] * size), None, None, group) + 1,
        lambda x: functional.broadcast(x * 2, 0, group) + 1,
        lambda x: [y + 1 for y in functional.all_reduce_coalesced([x, x * 2], "sum", group)],
        summed_in_place,
    ]


def compiled(function: Function) -> list[Function]:
    return [
        torch.compile(function, backend="hostjit"),
        hostjit.compile(function),
        hostjit.compile(function, runtime="evaluator"),
        hostjit.capture(function),
    ]


def main(file: str, rank: int, size: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    group = dist.group.WORLD
    assert group is not None
    torch.manual_seed(rank)
    for function in programs(group, size):
        for fast in compiled(function):
            for _ in range(3):
                x = torch.randn(4)
                assert_close(fast(x), function(x))
    weight = torch.randn(4, requires_grad=True)

    def summed(x: Tensor) -> Tensor:
        return functional.all_reduce(x * weight, "sum", group).sum()

    for fast in compiled(summed):
        x = torch.randn(4)
        gradients = [torch.autograd.grad(run(x), weight)[0] for run in (fast, summed)]
        assert_close(*gradients)
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="hostjit")
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
