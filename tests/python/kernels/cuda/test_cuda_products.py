# SPDX-License-Identifier: Apache-2.0
"""Small matrix products as kernels: their arithmetic on an emulated device, against eager."""

from __future__ import annotations

import pytest
import torch
from cuda_programs import cuda_graph
from emulation import EmulatedKernel, emulated
from product_cases import CASES

from hostjit.kernels.cuda import compile_ptx, cuda_kernel
from hostjit.lowering.devices import kernel_devices
from hostjit.lowering.grouping import PointwiseGroup, schedule


def group_of(name: str) -> PointwiseGroup:
    """The only kernel of a case."""
    case = CASES[name]
    graph = cuda_graph(case.function, lambda: tuple(case.arguments()))
    (group,) = schedule(graph, prefix=name, devices=kernel_devices(graph))
    assert isinstance(group, PointwiseGroup)
    return group


@pytest.fixture(scope="module")
def groups() -> dict[str, PointwiseGroup]:
    return {name: group_of(name) for name in CASES}


@pytest.fixture(scope="module")
def kernels(groups: dict[str, PointwiseGroup]) -> dict[str, EmulatedKernel]:
    return dict(zip(groups, emulated(group.kernel for group in groups.values()), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_products_are_eagers(
    name: str, groups: dict[str, PointwiseGroup], kernels: dict[str, EmulatedKernel]
) -> None:
    case, group = CASES[name], groups[name]
    values = case.values()
    placeholders = [node for node in group.members[0].graph.nodes if node.op == "placeholder"]
    buffers = dict(zip(placeholders, values, strict=True))
    results = []
    for node in group.outputs:
        fake = node.meta["val"]
        results.append(torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype))
    kernels[name](*(buffers[node] for node in group.inputs), *results)
    case.check(results, case.expected(values))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_products_compile(arch: str, groups: dict[str, PointwiseGroup]) -> None:
    try:
        for name in ("layer", "turned_matrices", "odd_layer_bfloat16", "layer_float64"):
            compile_ptx(cuda_kernel(groups[name].kernel).source, arch)
    except RuntimeError as error:
        if "no NVRTC" not in str(error):
            raise
        pytest.skip(str(error))


def test_threads_read_neighbours(groups: dict[str, PointwiseGroup]) -> None:
    def reads_columns(name: str) -> bool:
        return "reduce_columns<Sum" in cuda_kernel(groups[name].kernel).source

    assert reads_columns("matrices") and reads_columns("batch")
    assert not reads_columns("layer") and not reads_columns("turned_batch")
