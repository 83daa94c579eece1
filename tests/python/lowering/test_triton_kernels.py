# SPDX-License-Identifier: Apache-2.0
"""Functions of `@triton.jit` in compiled functions, compiled for a GPU that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from cuda_programs import cuda_graph, cuda_program

import hostjit
from hostjit import _C
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.functional.triton_launches import _choose

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")


@pytest.fixture(autouse=True)
def triton_without_a_gpu() -> Iterator[None]:
    """Dynamo takes no notice of Triton where there is no GPU."""
    with mock.patch("torch.utils._triton.has_triton", return_value=True):
        yield


@triton.jit
def add(x, y, out, n, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    total = tl.load(x + i, mask=inside) + scale * tl.load(y + i, mask=inside)
    tl.store(out + i, total, mask=inside)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, num_warps=2),
        triton.Config({"BLOCK": 256}, num_warps=8),
    ],
    key=["n"],
)
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def add_bias(x, bias, out, n, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    if HAS_BIAS:
        value += tl.load(bias)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def store_behind(addresses, x):  # type: ignore[no-untyped-def]
    pointer = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(pointer + tl.arange(0, 16), tl.load(x + tl.arange(0, 16)))


def added(x: torch.Tensor, y: torch.Tensor, scale: float = 0.5) -> torch.Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, scale, BLOCK=128)
    return out


def launches(program: _C.Program) -> list[_C.Op]:
    return [
        op for op in program.ops if op.name == "launch_kernel" and not op.kernel.endswith("_cuda")
    ]


def constants(program: _C.Program) -> dict[str, Any]:
    return {op.result.name: op.value for op in program.ops if op.name.endswith("_constant")}


def parameters(program: _C.Program, launch: _C.Op) -> list[Any]:
    """Names of tensors, and numbers."""
    numbers = constants(program)
    operands = [*launch.inputs, *launch.in_out, *launch.scalars]
    found = [operands[position].name for position in launch.parameters]
    return [numbers.get(name, name) for name in found]


def test_a_launch() -> None:
    program = cuda_program(lambda x: added(x, x + 1) * 2, lambda: (torch.ones(1000),))
    (launch,) = launches(program)
    assert launch.grid == [8, 1, 1] and launch.block == [128, 1, 1]
    assert len(launch.inputs) == 2 and len(launch.in_out) == 1
    # Behind the arguments are the null pointers of scratch memory.
    assert parameters(program, launch)[3:] == [1000, 0.5, 0, 0]
    assert program.kernels[launch.kernel].startswith(b"\x7fELF")
    assert hostjit.ir.parse(str(program)) == program
    assert "aten_call" not in [op.name for op in program.ops]


def test_numbers_that_are_one_are_constants() -> None:
    program = cuda_program(lambda x: added(x, x), lambda: (torch.ones(1),))
    (launch,) = launches(program)
    assert parameters(program, launch)[3:] == [0.5, 0, 0]


def test_only_what_holds_at_each_call_makes_a_variant() -> None:
    def divisible(f: Any, size: int) -> list[str]:
        with mock.patch("triton.compile", wraps=triton.compile) as compile_:
            cuda_program(f, lambda: (torch.ones(size),))
        source = compile_.call_args.args[0]
        return [source.fn.arg_names[position] for (position,) in source.attrs]

    def of_inputs(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    def of_new_memory(x: torch.Tensor) -> torch.Tensor:
        return added(x + 1, x + 2)

    def of_views(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x])
        return added(y.narrow(0, 1, 64), y.narrow(0, 4, 64))

    # Inputs are where the caller has them, new memory begins where 16 divides.
    assert divisible(of_inputs, 64) == ["out", "n"]
    assert divisible(of_inputs, 65) == ["out"]
    assert divisible(of_new_memory, 64) == ["x", "y", "out", "n"]
    assert divisible(of_views, 64) == ["y", "out", "n"]


def test_open_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    program = cuda_program(f, lambda: (torch.ones(100, 8),), open_dim=0)
    (launch,) = launches(program)
    assert isinstance(launch.grid[0], str)
    assert "parameters=[ptr, ptr, ptr, i32, f32, i64, i64]" in str(program)


def test_none_is_a_constant() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        add_bias[(1,)](x, None, out, 64, False, BLOCK=64)
        add_bias[(1,)](out, x, out, 64, True, BLOCK=64)
        return out

    program = cuda_program(f, lambda: (torch.ones(64),))
    first, second = launches(program)
    assert parameters(program, first)[2:] == [64, 0, 0]
    assert parameters(program, second)[3:] == [64, 0, 0]
    assert len(second.in_out) == 1 and len(second.inputs) == 1


def test_an_autotuned_kernel() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, x.numel())
        return x + 1

    for number, grid, block in ((0, 8, 64), (1, 4, 256)):
        with mock.patch(
            "hostjit.capturing.functional.triton_launches._choose", lambda *_, n=number: n
        ):
            program = cuda_program(f, lambda: (torch.ones(1000),))
        (launch,) = launches(program)
        assert launch.grid == [grid, 1, 1] and launch.block == [block, 1, 1]
        assert len(launch.in_out) == 1 and launch.inputs == []
    # Nothing is measured where nothing can be launched.
    assert _choose(double, [(8, 1, 1), (4, 1, 1)], {}) == 0


def test_scratch_memory_is_a_part_of_the_program() -> None:
    metadata = mock.Mock(
        spec=["name", "num_warps", "shared", "global_scratch_size", "profile_scratch_size"],
        num_warps=4,
        shared=1 << 16,
        global_scratch_size=96,
        profile_scratch_size=0,
    )
    metadata.name = "add"
    compiled = mock.Mock(asm={"cubin": b"\x7fELF", "ttir": ""}, metadata=metadata, hash="scratch")

    def f(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    with mock.patch("triton.compile", return_value=compiled):
        program = cuda_program(f, lambda: (torch.ones(1000),))
    (launch,) = launches(program)
    scratch = launch.in_out[1]
    assert scratch.name == parameters(program, launch)[-2]
    made = {op.result.name: op for op in program.ops if op.name in ("allocate", "view")}
    assert "tensor<u8, [768], cuda:0>" in str(made[scratch.name])
    assert launch.shared_memory == 1 << 16


def test_what_triton_refuses_says_why() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return added(x, x)

    with pytest.raises(CaptureError, match=r"Triton does not compile a kernel: .*complex64"):
        cuda_graph(f, lambda: (torch.ones(64, dtype=torch.complex64),))


def test_writes_to_memory_that_is_no_argument_are_refused() -> None:
    def f(addresses: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        store_behind[(1,)](addresses, x)
        return x + 1

    with pytest.raises(CaptureError, match="'store_behind' may write memory that is none of its"):
        cuda_graph(f, lambda: (torch.ones(4, dtype=torch.int64), torch.ones(16)))
