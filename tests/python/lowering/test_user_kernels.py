# SPDX-License-Identifier: Apache-2.0
"""`hostjit.kernel` and `hostjit.launch` without a GPU: what they accept, and the programs made."""

from __future__ import annotations

import ctypes
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch
from cuda_programs import cuda_graph, cuda_program

import hostjit
from hostjit import _C
from hostjit.capturing.capture import capture
from hostjit.capturing.errors import CaptureError
from hostjit.capturing.program import CapturedProgram
from hostjit.kernels.cuda.nvrtc import compile_function
from hostjit.launching.launch_operator import LAUNCH
from hostjit.launching.user_kernel import kernel_of
from hostjit.lowering.writes_in_place import with_writes_in_place

SOURCE = """
template <class T>
__global__ void scale(T* y, const T* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
extern "C" __global__ void mark(float* y) { y[FIRST] = 1; }
"""
PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p){ret;}\n"
CUBIN = b"\x7fELF\x02\x01\x01\x00\xffbytes"


def scale() -> hostjit.Kernel:
    return hostjit.kernel(
        SOURCE,
        "scale<float>",
        parameters=["ptr", "ptr", "f32", "i32"],
        writes=[0],
        options=["-DFIRST=0"],
        block=128,
    )


SCALE = scale()
BYTES = hostjit.kernel(CUBIN, "k", parameters=["ptr"], writes=[0], block=32)


def blocks(y: Any, x: Any, a: Any, n: Any) -> tuple[Any, ...]:
    return ((n + 127) // 128,)


def launches(program: _C.Program) -> list[_C.Op]:
    return [
        op for op in program.ops if op.name == "launch_kernel" and not op.kernel.endswith("_cuda")
    ]


def names(program: _C.Program) -> list[str]:
    return [op.name for op in program.ops]


# What a kernel may be made of.


def test_cuda_cpp_is_compiled_for_the_kernel_that_is_named() -> None:
    ptx, entry = compile_function(SOURCE, "scale<double>", "sm_90", ["-DFIRST=0"])
    assert f".entry {entry}(" in ptx and ".target sm_90" in ptx
    assert compile_function(SOURCE, "scale<double>", "sm_90", ["-DFIRST=0"]) == (ptx, entry)
    _, other = compile_function(SOURCE, "mark", "sm_90", ["-DFIRST=0"])
    assert other == "mark"


def test_options_are_those_of_the_user() -> None:
    first, _ = compile_function(SOURCE, "mark", "sm_90", ["-DFIRST=0"])
    second, _ = compile_function(SOURCE, "mark", "sm_90", ["-DFIRST=1"])
    assert first != second
    special, _ = compile_function(
        SOURCE, "mark", "sm_80", ["-DFIRST=0", "--gpu-architecture=compute_90a"]
    )
    assert ".target sm_90a" in special


@pytest.mark.parametrize(
    ("source", "entry", "message"),
    [
        (SOURCE, "missing", 'identifier "missing" is undefined'),
        (SOURCE + "x", "mark", "kernel.cu\\(8\\): error"),
    ],
)
def test_what_nvrtc_refuses_is_said(source: str, entry: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        compile_function(source, entry, "sm_90", ["-DFIRST=0"])


def test_files(tmp_path: Path) -> None:
    for name, text, language in (
        ("k.cu", SOURCE.encode(), "cuda"),
        ("k.ptx", PTX.encode(), "ptx"),
        ("k.cubin", CUBIN, "cubin"),
    ):
        path = tmp_path / name
        path.write_bytes(text)
        made = hostjit.kernel(path, "k", parameters=["ptr"], writes=[0])
        assert made._code.language == language
    with pytest.raises(ValueError, match=r"ends in \.cu, \.ptx, \.cubin or \.ll"):
        hostjit.kernel(tmp_path / "k.txt", "k", parameters=["ptr"], writes=[0])


class Function:
    """As cupy.cuda.Function."""

    name = "k"
    ptr = 0x7F00


class RawKernel:
    """As cupy.RawKernel."""

    kernel = Function()
    name = "raw"


class Handle:
    """As a handle of cuda.bindings."""

    def __int__(self) -> int:
        return 0x7F00


class CoreKernel:
    """As cuda.core.Kernel."""

    handle = Handle()


class Metadata:
    name = "triton_k"
    num_warps = 8
    num_ctas = 1
    shared = 1024
    global_scratch_size = 0
    profile_scratch_size = 0


class CompiledKernel:
    """As triton.compiler.CompiledKernel."""

    asm: ClassVar = {"cubin": CUBIN, "ptx": PTX}
    metadata = Metadata()


@pytest.mark.parametrize("code", [0x7F00, Function(), RawKernel(), Handle(), CoreKernel()])
def test_kernels_that_are_loaded(code: Any) -> None:
    made = hostjit.kernel(code, parameters=["ptr"], writes=[0], block=32)
    assert made.image("sm_90")[:2] == ("cuda_function", "0x7f00")
    with pytest.raises(TypeError, match="CUfunction of this process"):
        pickle.dumps(made)


def test_a_compiled_kernel_of_triton() -> None:
    made = hostjit.kernel(CompiledKernel(), parameters=["ptr"], writes=[0])
    assert made.image("sm_90") == ("cubin", CUBIN, "triton_k")
    assert made.block == (256, 1, 1) and made.shared_memory == 1024
    assert made.types == ("ptr", "i64", "i64")
    needs_scratch = mock.patch.object(Metadata, "global_scratch_size", 8)
    with needs_scratch, pytest.raises(ValueError, match="needs scratch memory"):
        hostjit.kernel(CompiledKernel(), parameters=["ptr"], writes=[0])


def test_kernels_travel_with_their_code() -> None:
    again = pickle.loads(pickle.dumps(SCALE))
    assert again.name == SCALE.name and again.number != SCALE.number
    assert again.parameters == SCALE.parameters and again.block == SCALE.block


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"code": SOURCE, "entry": None}, "entry is missing"),
        ({"code": SOURCE, "entry": "k", "language": "hip"}, "language is 'hip'"),
        ({"code": b"text", "entry": "k"}, "are no cubin"),
        ({"code": PTX, "entry": "k", "language": "ptx", "options": ["-G"]}, "options are for CUDA"),
        ({"code": object()}, "got a object, expected text, bytes"),
        ({"code": 1.5}, "got a float"),
        ({"code": 0}, "the address of its CUfunction is 0"),
        ({"code": PTX, "entry": "k", "parameters": ["ptr", "f16"]}, "parameter 1 has type 'f16'"),
        ({"code": PTX, "entry": "k", "parameters": ["i32"]}, "writes parameter 0, expected the"),
        ({"code": PTX, "entry": "k", "writes": [1]}, "writes parameter 1"),
        ({"code": PTX, "entry": "k", "block": (1, 1, 1, 1)}, "block has 4 sizes"),
    ],
)
def test_what_is_no_kernel(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        hostjit.kernel(**{"parameters": ["ptr"], "writes": [0], **arguments})


# Launches that are refused before anything runs.


@pytest.mark.parametrize(
    ("kernel", "grid", "args", "message"),
    [
        (BYTES, 1, (), "takes 1 arguments, got 0"),
        (BYTES, 1, (1,), "argument 0 is a int, expected a tensor or None"),
        (BYTES, 1, (torch.ones(4),), "argument 0 is on cpu, expected a CUDA device"),
        (BYTES, 1, (None,), "no argument is a tensor"),
        (BYTES, (1, 1, 1, 1), (torch.ones(4),), "grid has 4 sizes"),
        (BYTES, 1, (torch.ones(4, requires_grad=True),), "argument 0 requires a gradient"),
        (SCALE, 1, (None, None, "a", 1), "argument 2 is a str, expected a number"),
        (SCALE, 1, (None, None, 1, 1.5), "argument 3 is a float, expected an integer \\(i32\\)"),
        ("k", 1, (), "takes a hostjit.Kernel, got str"),
    ],
)
def test_launches_that_do_not_fit(kernel: Any, grid: Any, args: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        hostjit.launch(kernel, grid, args)


def test_a_launch_needs_a_block() -> None:
    kernel = hostjit.kernel(CUBIN, "k", parameters=["ptr"], writes=[0])
    with pytest.raises(ValueError, match="block is missing"):
        hostjit.launch(kernel, 1, (torch.ones(4),))


def test_a_kernel_that_is_gone() -> None:
    number = hostjit.kernel(CUBIN, "k", parameters=["ptr"], writes=[0]).number
    with pytest.raises(RuntimeError, match=f"there is no kernel {number}"):
        kernel_of(number)


def test_a_cpu_tensor_in_a_compiled_function() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(BYTES, 1, (x,))
        return x + 1

    with pytest.raises((CaptureError, ValueError), match="argument 0 is on cpu"):
        hostjit.compile(f, fallback=False)(torch.ones(4))


# What launches become in a program.


def test_a_launch_writes_a_fresh_tensor_in_place() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, blocks, (y, x + 1, 0.5, x.numel()), shared_memory=64)
        return y * 2

    program = cuda_program(f, lambda: (torch.ones(1000),))
    (launch,) = launches(program)
    assert launch.grid == [8, 1, 1] and launch.block == [128, 1, 1]
    assert launch.shared_memory == 64 and not launch.cooperative
    assert len(launch.inputs) == 1 and len(launch.in_out) == 1 and len(launch.scalars) == 2
    assert launch.parameters == [1, 0, 2, 3]
    # x + 1, the launch, and the product: nothing is copied.
    assert names(program).count("launch_kernel") == 3 and "aten_call" not in names(program)
    assert 'parameters=[ptr, ptr, f32, i32]) """' in str(program)


def test_an_input_is_written_where_it_is() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, blocks, (x, x, 0.5, x.numel()))
        hostjit.launch(SCALE, blocks, (x, x, 0.25, x.numel()))
        return x + 1

    program = cuda_program(f, lambda: (torch.ones(100),))
    first, second = launches(program)
    for launch in (first, second):
        assert launch.parameters == [0, 0, 1, 2] and len(launch.in_out) == 1
    assert names(program).count("launch_kernel") == 3 and "copy" not in names(program)


def test_views_of_one_tensor_share_its_memory() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        table = torch.zeros(8, 8, device=x.device)
        hostjit.launch(SCALE, (1,), (table.select(0, 2), x, 2.0, 8))
        hostjit.launch(SCALE, (1,), (table.select(0, 3), table.select(0, 2), 3.0, 8))
        return table, table.sum()

    program = cuda_program(f, lambda: (torch.ones(8),))
    first, second = launches(program)
    views = [op for op in program.ops if op.name == "view"]
    offsets = {view.result.name: view.offset for view in views}
    assert offsets[first.in_out[0].name] == 16 and len(first.inputs) == 1
    # What the second one reads is written by the first one: the same memory, not a copy.
    assert sorted(offsets[value.name] for value in second.in_out) == [16, 24]
    assert second.inputs == []


@pytest.mark.parametrize("reads_before", [True, False])
def test_what_is_still_read_is_copied(reads_before: bool) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x + 1
        kept = h.clone() if reads_before else h
        hostjit.launch(SCALE, blocks, (h, h, 0.5, x.numel()))
        return h, kept

    graph = cuda_graph(f, lambda: (torch.ones(100),))
    program = cuda_program(f, lambda: (torch.ones(100),))
    program.verify()
    (node,) = graph.find_nodes(op="call_function", target=LAUNCH)
    assert len(node.args[3]) == 2  # what is read is the memory that is written
    assert len({value.name for value in program.outputs}) == 1 + reads_before


def test_null_pointers_are_zeros() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, (1,), (x, None, 0.5, 4))
        return x + 1

    program = cuda_program(f, lambda: (torch.ones(4),))
    (launch,) = launches(program)
    assert "parameters=[ptr, i64, f32, i32]" in str(program)
    constants = {op.result.name: op.value for op in program.ops if op.name == "index_constant"}
    operands = [*launch.in_out, *launch.scalars]
    assert constants[operands[launch.parameters[1]].name] == 0


def test_open_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, blocks, (y, x, 0.5, x.numel()))
        return y

    program = cuda_program(f, lambda: (torch.ones(100, 8),), open_dim=0)
    (launch,) = launches(program)
    assert isinstance(launch.grid[0], str) and launch.grid[1:] == [1, 1]
    assert hostjit.ir.parse(str(program)) == program


def test_attributes_of_a_launch() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(
            BYTES, (2, 3), (x,), block=(8, 4), cluster=(2,), cooperative=True, programmatic=True
        )
        return x + 1

    program = cuda_program(f, lambda: (torch.ones(100),))
    (launch,) = launches(program)
    assert launch.grid == [2, 3, 1] and launch.block == [8, 4, 1] and launch.cluster == [2, 1, 1]
    assert launch.cooperative and launch.programmatic
    assert program.kernels[launch.kernel] == CUBIN
    assert hostjit.ir.parse(str(program)) == program


def test_a_function_that_is_loaded_is_no_text() -> None:
    kernel = hostjit.kernel(0x7F00, "k", parameters=["ptr"], writes=[0], block=32)

    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(kernel, 1, (x,))
        return x + 1

    program = cuda_program(f, lambda: (torch.ones(100),))
    assert 'cuda_function(entry="k", parameters=[ptr])' in str(program)
    with pytest.raises(hostjit.Error, match="is a cuda_function of the process that printed it"):
        hostjit.ir.parse(str(program))


def test_a_kernel_of_another_package_lives_as_long_as_programs_call_it() -> None:
    class Function:
        """Unload a module at the end, as CuPy's does."""

        ptr = 0x7F00

    function = Function()
    gone = weakref.ref(function)
    kernel = hostjit.kernel(function, "k", parameters=["ptr"], writes=[0], block=32)
    program = _C.Program("p")
    kernel.add_to(program, "k", ["ptr"])
    del function, kernel
    gc.collect()
    assert gone() is not None
    del program
    gc.collect()
    assert gone() is None


def test_inputs_that_share_memory_are_not_captured() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hostjit.launch(BYTES, 1, (x,))
        return y + 1

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.ones(100)
        return x, x.view(10, 10)

    with pytest.raises(CaptureError, match="share memory"):
        cuda_graph(f, both)


def test_the_location_is_the_users_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(BYTES, 1, (x,))
        return x + 1

    program = cuda_program(f, lambda: (torch.ones(100),))
    (launch,) = launches(program)
    assert Path(__file__).name in str(launch) and "launching" not in str(launch)


# Launches outside of programs, on kernels that can't be launched here.


def test_words_are_checked_by_the_core() -> None:
    kernel = _C.DeviceKernel("k", PTX, "ptx", "k", ["ptr", "i32"])
    shape: Any = ([1, 1, 1], [1, 1, 1], [1, 1, 1], 0, False, False)
    with pytest.raises(hostjit.Error, match="parameter 0 is on cpu, expected cuda:0"):
        kernel.launch(0, *shape, [torch.ones(4), 1])
    with pytest.raises(hostjit.Error, match="parameter 1 is a float, expected an integer"):
        kernel.launch(0, *shape, [None, 1.5])
    with pytest.raises(hostjit.Error, match="parameter 1 is 4294967296, which its type"):
        kernel.launch(0, *shape, [None, 1 << 32])
    with pytest.raises(hostjit.Error, match="is llvm_ir, expected code for CUDA"):
        _C.DeviceKernel("k", "", "llvm_ir", "k", [])
    with pytest.raises(hostjit.Error, match="expected an address such as 0x7f00"):
        _C.DeviceKernel("k", "k", "cuda_function", "k", [])
    with pytest.raises(hostjit.Error, match="grid has size -1"):
        kernel.launch(0, [-1, 1, 1], *shape[1:], [None, 1])


def test_the_handle_of_a_c_pointer_is_an_address() -> None:
    made = hostjit.kernel(ctypes.c_void_p(0x7F00).value, parameters=["ptr"], writes=[0])
    assert made.image("sm_80") == ("cuda_function", "0x7f00", "function")


def captured_on_cpu(f: Any, *arguments: torch.Tensor) -> CapturedProgram:
    """Capture a call on the CPU, where the operator would refuse to run."""
    with torch.library._scoped_library("hostjit", "FRAGMENT") as library:
        torch.library.register_fake(
            "hostjit::launch_kernel", lambda *_: None, lib=library, allow_override=True
        )
        return capture(f, arguments)


def test_an_input_that_does_not_start_where_its_memory_does() -> None:
    """Nothing in front of it is read: another call has it elsewhere."""

    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, blocks, (x, x, 0.5, x.numel()))
        return x + 1

    with torch.no_grad():
        graph = captured_on_cpu(f, torch.ones(100)[16:80]).graph_module.graph
    views = graph.find_nodes(op="call_function", target=torch.ops.aten.as_strided.default)
    assert [view.args[1:] for view in views] == [([64], [1], 0)] * 2


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, blocks, (y, x, 2.0, x.numel()))
        return y

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        y = torch.empty_like(gradient)
        hostjit.launch(SCALE, blocks, (y, gradient, 2.0, gradient.numel()))
        return y


def test_launches_of_both_directions() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Scale.apply(x * w)
        return (y + 1).sum()

    captured = captured_on_cpu(f, torch.ones(4), torch.ones(4, requires_grad=True))
    assert captured.backward is not None
    for half in (captured.graph_module.graph, captured.backward.graph_module.graph):
        graph = with_writes_in_place(half, is_own=False)
        targets = [str(node.target) for node in graph.nodes if node.op == "call_function"]
        assert targets.count("hostjit.launch_kernel.default") == 1
        assert "aten.clone.default" not in targets
        assert "aten.as_strided_scatter.default" not in targets
