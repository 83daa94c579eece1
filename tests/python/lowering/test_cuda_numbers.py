# SPDX-License-Identifier: Apache-2.0
"""Numbers of the host in programs for CUDA: launches take them as scalars, read at the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_programs import cuda_program, ops_of, optimizer_program

from hostjit import _C


def launches(program: _C.Program, *, cuda: bool) -> list[Any]:
    found = [op for op in program.ops if op.name == "launch_kernel"]
    return [op for op in found if op.kernel.endswith("_cuda") is cuda]


def number(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.empty((), dtype=dtype, device="cpu")


def sources(program: _C.Program) -> dict[str, Any]:
    """What the numbers of a program are taken from, by their names."""
    return {op.result.name: op.source for op in program.ops if op.name == "item"}


@pytest.mark.parametrize(
    ("dtype", "type_"),
    [
        (torch.float64, "f64"),
        (torch.float32, "f64"),
        (torch.bfloat16, "f64"),
        (torch.int32, "index"),
        (torch.bool, "index"),
    ],
)
def test_a_number_is_a_scalar_of_the_launch(dtype: torch.dtype, type_: str) -> None:
    program = cuda_program(lambda x, n: x * n + n, lambda: (torch.empty(8), number(dtype)))
    (launch,) = launches(program, cuda=True)
    (scalar,) = launch.scalars
    assert [value.name for value in launch.inputs] == ["x"]
    assert str(scalar.type) == type_
    assert sources(program)[scalar.name].name == "n"


def test_a_view_of_host_memory_is_a_number() -> None:
    def scaled(x: Any, numbers: Any) -> Any:
        return x * numbers[1] + numbers[0]

    program = cuda_program(scaled, lambda: (torch.empty(8), torch.empty(4, device="cpu")))
    (launch,) = launches(program, cuda=True)
    assert len(launch.scalars) == 2
    offsets = {op.result.name: op.offset for op in program.ops if op.name == "view"}
    taken = [offsets.get(sources(program)[scalar.name].name, 0) for scalar in launch.scalars]
    assert taken == [1, 0]


def test_a_number_that_the_program_makes_is_taken_behind_its_kernel() -> None:
    def both(x: Any, n: Any) -> Any:
        return x * (n.exp() + 1)

    assert ops_of(both, lambda: (torch.empty(8), number())) == ["exp_add", "item", "mul_cuda"]


def test_a_number_is_taken_before_it_is_written() -> None:
    """`n` counts on in place behind the launch that takes what it was, and what it becomes."""

    def count(x: Any, n: Any) -> Any:
        before = x * n
        n.add_(1)
        return before, x.exp() + n

    program = cuda_program(count, lambda: (torch.empty(8), number()))
    (launch,) = launches(program, cuda=True)
    (host,) = launches(program, cuda=False)
    old, new = (sources(program)[scalar.name].name for scalar in launch.scalars)
    assert old == "n"
    assert [value.name for value in host.outputs] == [new]
    order = [op.name for op in program.ops if op.name not in ("allocate", "view")]
    assert order == ["launch_kernel", "item", "item", "launch_kernel", "copy"]


def test_equal_kernels_with_other_numbers_are_one() -> None:
    def scaled(x: Any, y: Any, a: Any, b: Any) -> Any:
        return x * a, y * b

    program = cuda_program(scaled, lambda: (torch.empty(8), torch.empty(8), number(), number()))
    first, second = launches(program, cuda=True)
    assert first.kernel == second.kernel
    assert sources(program)[second.scalars[0].name].name == "b"


def test_numbers_are_not_rounded_to_half_precision() -> None:
    def halves(x: Any, n: Any) -> Any:
        return x * n

    program = cuda_program(halves, lambda: (torch.empty(8, dtype=torch.float16), number()))
    (text,) = [kernel for name, kernel in program.kernels.items() if name.endswith("_cuda")]
    assert "double a_host0" in text
    assert "narrow" not in text.split("points_of_", 1)[1]


def test_a_quotient_by_a_number_is_a_product() -> None:
    """As eager's kernel for CUDA computes it: with the inverse, which each thread needs once."""
    program = cuda_program(lambda x, n: x / n, lambda: (torch.empty(8), number()))
    (text,) = [kernel for name, kernel in program.kernels.items() if name.endswith("_cuda")]
    assert "op_mul" in str(text)


def test_a_tensor_without_dims_on_the_device_is_none() -> None:
    program = cuda_program(lambda x, n: x * n, lambda: (torch.empty(8), torch.empty(())))
    (launch,) = launches(program, cuda=True)
    assert launch.scalars == [] and len(launch.inputs) == 2


def test_work_on_one_number_of_the_device_is_done_once() -> None:
    """The threads of the others only read what a launch of one thread makes."""

    def corrected(x: Any, step: Any) -> Any:
        return x / (1 - torch.pow(0.9, step.to(torch.float64)))

    first, second = launches(
        cuda_program(corrected, lambda: (torch.empty(64), torch.empty(()))), cuda=True
    )
    assert first.grid == [1, 1, 1]
    assert second.kernel.startswith("div_")


def test_inputs_are_written_where_they_are_read() -> None:
    def update(x: Any, y: Any) -> None:
        x.mul_(2).add_(y)

    program = cuda_program(update, lambda: (torch.empty(1000), torch.empty(1000)))
    (launch,) = launches(program, cuda=True)
    assert [value.name for value in launch.in_out] == ["x"]
    assert [value.name for value in launch.inputs] == ["y"]
    assert not launch.outputs


def test_inputs_that_are_read_elsewhere_are_copied_to() -> None:
    def update(x: Any) -> None:
        x.add_(x.flip(0))

    program = cuda_program(update, lambda: (torch.empty(1000),))
    assert len(launches(program, cuda=True)) == 2
    turned = cuda_program(
        lambda x, y: x.add_(y.t()), lambda: (torch.empty(64, 64), torch.empty(64, 64))
    )
    assert len(launches(turned, cuda=True)) == 2


SHAPES = [(64, 32), (64,), (8, 64), (8,)]


@pytest.mark.parametrize("form", ["foreach", "single"])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
def test_an_update_is_one_launch(kind: Any, form: str) -> None:
    program = optimizer_program(
        lambda params: kind(params, weight_decay=0.01, foreach=form == "foreach"), SHAPES
    )
    found = launches(program, cuda=True)
    assert len(found) == len(SHAPES)
    assert not [op for op in program.ops if op.name == "aten_call"]
    for launch in found:
        assert len(launch.in_out) == 3 and not launch.outputs  # the parameter and two averages
        assert len(launch.scalars) >= 4
    # Counting and the corrections are work of the host, of which there is something to be done.
    assert launches(program, cuda=False)


def test_a_fused_update_computes_its_corrections_once() -> None:
    program = optimizer_program(
        lambda params: torch.optim.AdamW(params, fused=True), SHAPES, step_device="cuda:0"
    )
    found = launches(program, cuda=True)
    updates = [launch for launch in found if len(launch.in_out) == 3]
    corrections = [launch for launch in found if launch not in updates]
    assert len(updates) == len(corrections) == len(SHAPES)
    assert all(launch.grid == [1, 1, 1] for launch in corrections)
    assert not [launch for launch in updates if "pow" in launch.kernel]
    assert not [op for op in program.ops if op.name == "aten_call"]


def test_sgd_is_one_launch() -> None:
    for momentum in (0.0, 0.9):
        program = optimizer_program(
            lambda params, momentum=momentum: torch.optim.SGD(params, lr=0.1, momentum=momentum),
            SHAPES,
        )
        assert len(launches(program, cuda=True)) == len(SHAPES)
        assert not [op for op in program.ops if op.name == "aten_call"]


def test_adadelta_is_one_launch() -> None:
    program = optimizer_program(lambda params: torch.optim.Adadelta(params), SHAPES)
    assert len(launches(program, cuda=True)) == len(SHAPES)
    assert not [op for op in program.ops if op.name == "aten_call"]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="an older version of torch")
def test_muon_is_launches_and_products() -> None:
    program = optimizer_program(lambda params: torch.optim.Muon(params), [(8, 16), (16, 8)])
    products = [op for op in program.ops if op.name == "addmm"]
    assert len(products) == 2 * 2 * 5  # two in each iteration, beside the matrix times itself
    assert not [op for op in program.ops if op.name == "aten_call"]


@pytest.mark.parametrize("fused", [False, True])
def test_launches_of_a_step_are_one_graph(fused: bool) -> None:
    program = optimizer_program(
        lambda params: torch.optim.AdamW(params, fused=fused),
        SHAPES,
        step_device="cuda:0" if fused else "cpu",
    )
    planned = _C.CompiledProgram(program).program
    assert {launch.graph for launch in launches(planned, cuda=True)} == {0}
