# SPDX-License-Identifier: Apache-2.0
"""Triton's own launches in recordings: fake CUDA tensors, and a driver of Triton that is a double.

Triton compiles for a GPU that is not there; what it would launch is noted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch

import hostjit
from hostjit.launching import triton_kernels
from hostjit.launching.launch_operator import LAUNCH
from hostjit.launching.user_kernel import kernel_of
from hostjit.recording.triton import launches as triton_launches

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

import triton_recordings  # noqa: E402
from triton_driver import triton_without_a_gpu  # noqa: E402
from triton_recordings import add, added, blocks, fakes, multiply, part, record, tuned  # noqa: E402


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with triton_without_a_gpu() as found, torch.no_grad():
        yield found


def variants(function: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    """The arguments of a launch that 16 divides at each replay, and what is compared for that."""
    launch_of = triton_launches.launch_of
    with mock.patch.object(triton_launches, "launch_of", wraps=launch_of) as called:
        recorded = record(function, *tensors)
    assert not recorded.problem
    source = called.call_args.args[0].src
    names = [source.fn.arg_names[at] for (at, *_), found in source.attrs.items() if found]
    return names, recorded.launches.aligned


def test_a_launch_takes_place_and_is_a_part_of_the_program(driver: Any) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return added(x, y + 1) * 2

    recorded = record(f, *fakes(1000, 1000))
    assert not recorded.problem and not recorded.state.change()
    (launched,) = driver.launches
    assert launched.grid == (8, 1, 1) and launched.arguments["n"] == 1000
    (node,) = recorded.nodes()
    assert node["read_at"] == [0, 1] and node["written_at"] == [2]
    assert node["integers"] == [1000] and node["floats"] == [0.5]
    assert node["grid"] == [8, 1, 1] and node["block"] == [128, 1, 1]
    assert kernel_of(node["kernel"]).image("sm_90")[0] == "cubin"
    names = [op.name for op in recorded.program().ops]
    assert names.count("launch_kernel") == 3 and "aten_call" not in names


def test_what_a_launch_writes_is_seen_by_what_follows() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            add[(1,)](x, x, x, 64, 0.5, BLOCK=64)
        return x

    recorded = record(f, *fakes(64))
    names = [op.name for op in recorded.program().ops]
    assert names.count("launch_kernel") == 2 and "allocate" not in names


def test_options_of_a_launch_are_those_of_the_kernel() -> None:
    recorded = record(lambda x: added(x, x, num_warps=8), *fakes(1000))
    assert recorded.nodes()[0]["block"] == [256, 1, 1]


def test_only_what_holds_at_each_replay_makes_a_variant(driver: Any) -> None:
    def of_inputs(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    def of_new_memory(x: torch.Tensor) -> torch.Tensor:
        return added(x + 1, x + 2)

    def of_views(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return added(part(y, 1), part(y, 4))

    def of_views_of_inputs(x: torch.Tensor) -> torch.Tensor:
        return added(part(x, 4), part(x.detach(), 1))

    # Of inputs it is compared, new memory begins where 16 divides.
    assert variants(of_inputs, *fakes(64)) == (["x", "y", "out", "n"], [0])
    assert variants(of_inputs, *fakes(65)) == (["x", "y", "out"], [0])
    assert variants(of_new_memory, *fakes(64)) == (["x", "y", "out", "n"], [])
    assert variants(of_views, *fakes(64)) == (["y", "out", "n"], [])
    assert variants(of_views_of_inputs, *fakes(64)) == (["x", "out", "n"], [0])
    assert len(driver.launches) == 5
    (x,) = fakes(64)
    x.address = 8  # type: ignore[attr-defined]
    assert variants(of_inputs, x) == (["out", "n"], [])


def test_what_lies_in_an_unaligned_input_is_taken_to_be_so(driver: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = part(x, 2)
        y.address = 8  # type: ignore[attr-defined]
        return added(y, y)

    (x,) = fakes(64)
    x.address = 8  # type: ignore[attr-defined]
    assert variants(f, x) == (["out", "n"], [])
    # Triton launched what it found; the other was only compiled.
    (launched,) = driver.launches
    found = launched.source
    assert next(found.fn.arg_names[at] for (at,), x in found.attrs.items() if x) == "x"


def test_constants_are_no_parameters() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    (node,) = record(f, *fakes(1)).nodes()
    assert node["integers"] == [] and node["floats"] == [0.5]


def test_an_autotuned_kernel_is_recorded_with_its_configuration(driver: Any) -> None:
    kernel = tuned(reset_to_zero=["out"])

    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        kernel[blocks](x, out, x.numel())
        return out

    driver.measured = [1.0, 2.0]  # the last one is the fastest
    first = record(f, *fakes(1000))
    assert first.launches.tuned and not first.problem
    assert len(driver.launches) == 3
    second = record(f, *fakes(1000))
    assert not second.launches.tuned and not second.problem and not second.state.change()
    (node,) = second.nodes()
    assert node["grid"] == [4, 1, 1] and node["block"] == [256, 1, 1]
    # What is done for the sake of measurements is no part of later calls.
    targets = [node.target for node in second.recorder.graph.nodes]
    assert torch.ops.aten.zero_.default not in targets


def test_a_hook_of_a_configuration_is_recorded(driver: Any) -> None:
    def clear(arguments: dict[str, Any]) -> None:
        arguments["out"].zero_()

    config = triton.Config({"BLOCK": 128}, pre_hook=clear)
    kernel = triton.autotune(configs=[config], key=["n"])(multiply)

    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[blocks](x, out, x.numel())
        return out

    recorded = record(f, *fakes(1000))
    assert not recorded.problem
    targets = [node.target for node in recorded.recorder.graph.nodes]
    assert targets.index(torch.ops.aten.zero_.default) < targets.index(LAUNCH)


def test_heuristics_are_those_of_the_recorded_call() -> None:
    kernel = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"])})(
        multiply
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[lambda meta: (meta["n"] // meta["BLOCK"] + 1,)](x, out, x.numel())
        return out

    recorded = record(f, *fakes(200))
    assert not recorded.problem
    assert recorded.nodes()[0]["grid"] == [1, 1, 1]
    assert kernel.values["BLOCK"].__code__ in recorded.seen.codes


def test_scratch_memory_is_a_part_of_the_recording() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    def with_scratch(compiled: Any, *rest: Any) -> Any:
        found = triton_kernels.launch_of(compiled, *rest)
        return dataclasses.replace(found, kernel=kernel, scratch_bytes=96)

    kernel = hostjit.kernel(
        b"\x7fELF", "k", parameters=[*["ptr"] * 3, "i32", "f32", "ptr"], writes=[2, 5], block=128
    )

    with mock.patch.object(triton_launches, "launch_of", with_scratch):
        recorded = record(f, *fakes(1000))
    (node,) = recorded.nodes()
    scratch = dict(zip(node["written_at"], node["written"], strict=True))[5]
    assert [x.args[0] for x in scratch.all_input_nodes or [scratch]] == [[768]]


def test_what_a_kernel_finds_in_globals_is_watched() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        multiply[(3,)](x, x, 300, BLOCK=128)
        return x

    recorded = record(f, *fakes(300))
    assert not recorded.problem and recorded.state.holds()
    with mock.patch.object(triton_recordings, "FACTOR", tl.constexpr(3)):
        assert not recorded.state.holds()
    assert recorded.state.holds()
    multiply.add_pre_run_hook(print)
    try:
        assert not recorded.state.holds()
    finally:
        multiply.pre_run_hooks.clear()
    assert recorded.state.holds()


def test_kernels_that_are_wrapped_for_tracers_are_recorded(driver: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        torch.library.wrap_triton(multiply)[(1,)](x, x, x.numel(), BLOCK=64)
        return x

    recorded = record(f, *fakes(64))
    assert not recorded.problem and len(recorded.nodes()) == len(driver.launches) == 1


def test_launches_of_tensors_that_need_gradients() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    with torch.enable_grad():
        recorded = record(f, *fakes(64, requires_grad=True))
    assert not recorded.problem
    (node,) = recorded.nodes()
    assert {str(x.target) for x in node["read"]} == {"aten.detach.default"}
