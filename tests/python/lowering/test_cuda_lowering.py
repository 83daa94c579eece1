# SPDX-License-Identifier: Apache-2.0
"""What programs for CUDA are made of: launches of own kernels, products, calls of operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_programs import cuda_program, on_cuda, ops_of
from torch import nn
from torch.nn.functional import interpolate


def test_a_group_is_launched_on_the_device() -> None:
    program = cuda_program(lambda x: (x * 2).relu(), lambda: (torch.empty(1000),))
    (launch,) = [op for op in program.ops if op.name == "launch_kernel"]
    assert launch.kernel.endswith("_cuda")
    assert len(launch.grid) == 3 and len(launch.block) == 3
    assert launch.in_place == [] and launch.errors == []
    assert f"kernel @{launch.kernel} ptx(" in str(program)


def test_a_layer_is_a_product_and_launches() -> None:
    layer = nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 1024), nn.GELU(), nn.Softmax(-1))

    def apply(x: Any, layer: nn.Module) -> Any:
        return layer(x)

    ops = ops_of(apply, lambda: (torch.empty(16, 1024), on_cuda(layer)))
    assert ops == [
        "native_layer_norm_cuda",
        "linear",
        "gelu_softmax_cuda",
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_kernels_have_any_dtype(dtype: torch.dtype) -> None:
    assert ops_of(lambda x: x * x + x, lambda: (torch.ones(8, dtype=dtype),)) == ["mul_add_cuda"]


def test_a_long_row_is_shared_by_blocks() -> None:
    assert ops_of(lambda x: x.sum(), lambda: (torch.empty(1 << 20),)) == [
        "sum_cuda",
        "sum_end_cuda",
    ]
    assert ops_of(lambda x: x.sum(), lambda: (torch.empty(1 << 10),)) == ["sum_cuda"]


def test_long_rows_of_several_passes_are_shared_by_blocks() -> None:
    """What depends on results of a row is written by a launch of its own."""

    def repeated(x: Any) -> Any:
        for _ in range(3):
            x = x + (x - x.mean()).tanh() / 8 + x.amax() / 16
        return x

    program = cuda_program(repeated, lambda: (torch.empty(1 << 20),))
    launches = [op for op in program.ops if op.name == "launch_kernel"]
    few = [op.kernel for op in launches if op.grid[0] < 100]
    assert all("rows" in name or "_end_" in name for name in few)
    assert len(launches) == 11


@pytest.mark.parametrize(
    ("function", "length", "expected"),
    [
        (lambda x: x.softmax(-1), 1 << 20, ["parts1", "rows1", "parts2", "rows2", "elements"]),
        (lambda x: x.log_softmax(-1), 50304, ["parts1", "rows1", "parts2", "rows2", "elements"]),
        (lambda x: x.softmax(-1), 1000003, ["aten::_softmax"]),
    ],
)
def test_few_long_rows(function: Any, length: int, expected: list[str]) -> None:
    ops = ops_of(function, lambda: (torch.empty(4, length),))
    assert [op.removesuffix("_cuda").split("_")[-1] for op in ops] == [
        op.split("_")[-1] for op in expected
    ]


def test_nothing_is_launched_for_no_elements() -> None:
    assert ops_of(lambda x: x.exp() + 1, lambda: (torch.empty(0, 8),)) == []


def test_work_of_the_host_stays_there() -> None:
    def both(x: Any, y: Any) -> Any:
        return x.exp() + 1, y.exp() + 1

    def make() -> Any:
        return torch.empty(8), torch.empty(8, device="cpu")

    assert sorted(ops_of(both, make)) == ["exp_add", "exp_add_cuda"]


def test_numbers_made_of_nothing_are_part_of_kernels() -> None:
    def fill(x: Any) -> Any:
        return torch.where(x > 0, x, torch.full((), 2.0, device="cpu"))

    assert ops_of(fill, lambda: (torch.empty(8),)) == ["gt_where_cuda"]


def test_an_index_of_the_host_is_left_to_operators() -> None:
    def make() -> Any:
        return torch.empty(8), torch.zeros(2, dtype=torch.int64, device="cpu")

    assert ops_of(lambda x, i: torch.ops.aten.index(x, [i]), make) == ["aten::index.Tensor"]


def test_copies_between_devices_are_calls() -> None:
    assert ops_of(lambda x: x.cpu() + 1, lambda: (torch.empty(8),)) == ["aten::_to_copy", "add"]
    on_host = lambda: (torch.empty(8, device="cpu"),)  # noqa: E731
    assert ops_of(lambda x: x.to("cuda:0") + 1, on_host) == ["aten::_to_copy", "add_cuda"]


def test_other_devices_are_left_to_operators() -> None:
    def make() -> Any:
        return torch.empty(8), torch.empty(8, 8, device="cuda:1")

    def both(x: Any, y: Any) -> Any:
        return x + 1, torch.cat([torch.mm(y, y), y])

    assert ops_of(both, make) == ["add_cuda", "aten::mm", "aten::cat"]


def test_parts_of_one_size_are_one_kernel() -> None:
    def make() -> Any:
        return torch.empty(4, 8), torch.empty(4, 8), torch.empty(4, 8)

    assert ops_of(lambda *parts: torch.cat(parts, 1), make) == ["copy_cuda"]
    assert ops_of(lambda *parts: torch.stack(parts), make) == ["copy_cuda"]


def test_parts_of_many_sizes_are_a_call() -> None:
    def make() -> Any:
        return tuple(torch.empty(4, width) for width in (8, 16, 8, 24))

    assert ops_of(lambda *parts: torch.cat(parts, 1), make) == ["aten::cat"]
    assert ops_of(lambda *parts: torch.cat(parts[:3], 1), make) == ["copy_cuda", "copy_cuda"]


def test_large_items_are_copied_in_parts() -> None:
    def make() -> Any:
        return (torch.empty(4, dtype=torch.complex128),)

    assert ops_of(lambda x: torch.stack([x, x]), make) == ["copy_cuda"]


def test_fills_are_kernels() -> None:
    pad = torch.nn.functional.pad
    assert ops_of(lambda x: pad(x, (1, 2)), lambda: (torch.empty(8),)) == ["fill_cuda", "copy_cuda"]


def test_writes_of_inputs_are_kernels() -> None:
    assert ops_of(lambda x: x.add_(1), lambda: (torch.empty(8),)) == ["add_cuda"]


LAYOUTS_ON_CUDA: dict[str, tuple[Any, list[int]]] = {
    "roll": (lambda x: x.roll(1, 1), [120, 20, 5, 1]),
    "shuffle": (lambda x: torch.channel_shuffle(x, 2), [120, 20, 5, 1]),
    "bilinear": (lambda x: interpolate(x, scale_factor=2, mode="bilinear"), [480, 1, 60, 6]),
}


@pytest.mark.parametrize("name", LAYOUTS_ON_CUDA)
def test_results_have_the_strides_of_eager_on_cuda(name: str) -> None:
    """As an H200 with torch 2.11 gave them."""
    function, strides = LAYOUTS_ON_CUDA[name]
    channels_last = torch.channels_last
    program = cuda_program(
        function, lambda: (torch.empty((1, 6, 4, 5), memory_format=channels_last),)
    )
    assert program.outputs[0].type.strides == strides


def test_calls_tell_all_that_operators_return() -> None:
    """A result that a call does not tell of is an error when the program runs."""

    def choose(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    program = cuda_program(choose, lambda: (torch.empty(8),))
    calls = [op for op in program.ops if op.name == "aten_call"]
    for call in calls:
        packet, _, overload = call.target.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        assert len(call.results) + len(call.absent) == len(operator._schema.returns)
    assert calls


def test_conditions_are_brought_to_the_host() -> None:
    def choose(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    ops = ops_of(choose, lambda: (torch.empty(8),))
    assert ops == ["sum_gt_cuda", "aten::copy_", "if"]


def test_arithmetic_rounds_where_cuda_does() -> None:
    """Quotients by numbers are products, and numbers are not rounded to half precision."""

    def halves(x: Any) -> Any:
        return x / 3, x + 0.1, x.add(x, alpha=0.3)

    text = str(cuda_program(halves, lambda: (torch.empty(8, dtype=torch.float16),)))
    for number in (1 / 3, 0.1, 0.3):
        assert torch.tensor(number).item().hex() in text
    assert "op_div(v" not in text


def test_few_long_rows_take_few_launches() -> None:
    long = lambda: (torch.empty(1 << 20),)  # noqa: E731
    ops = ops_of(lambda x: x.exp() - x.mean().sqrt(), long)
    assert ops == ["exp_mean_sqrt_cuda", "exp_mean_sqrt_end_cuda", "sub_cuda"]
    assert ops_of(lambda x: torch.softmax(x, 0), lambda: (torch.empty(1 << 12),)) == [
        "softmax_cuda"
    ]


def test_columns_are_shared_by_blocks() -> None:
    ops = ops_of(lambda x: x.sum(0), lambda: (torch.empty(8192, 1024),))
    assert ops == ["sum_cuda", "sum_end_cuda"]
    assert ops_of(lambda x: x.sum(1), lambda: (torch.empty(8192, 1024),)) == ["sum_cuda"]


def test_what_log_sigmoid_keeps_on_cuda_is_empty() -> None:
    """Its buffer is for the CPU: a kernel that wrote one here would write to memory of others."""
    program = cuda_program(torch.ops.aten.log_sigmoid_forward, lambda: (torch.empty(5, 7),))
    output, buffer = program.outputs
    assert (output.type.dims, buffer.type.dims) == ([5, 7], [0])
    launches = [op for op in program.ops if op.name == "launch_kernel"]
    assert [list(op.outputs) for op in launches] == [[output]]


def test_triangles_are_kernels() -> None:
    def masked(x: Any) -> Any:
        return x.tril() + torch.eye(8, device=x.device)

    assert ops_of(masked, lambda: (torch.empty(8, 8),)) == ["tril_add_cuda"]


def test_factorizations_and_scans_are_left_to_libraries() -> None:
    def solved(x: Any) -> Any:
        factor, info = torch.linalg.cholesky_ex(x)
        return torch.linalg.solve_triangular(factor, x, upper=False).cumsum(0), info

    assert ops_of(solved, lambda: (torch.empty(4, 4),)) == [
        "aten::linalg_cholesky_ex",
        "aten::linalg_solve_triangular",
        "aten::cumsum",
    ]
