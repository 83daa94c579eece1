# SPDX-License-Identifier: Apache-2.0
"""Files of programs that launch users' kernels for CUDA, without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import hostjit
from hostjit import _C
from hostjit.capturing.functional.trace import trace_functional
from hostjit.launching.launch_operator import LAUNCH
from hostjit.lowering.lower import lower
from hostjit.saving.container import opened, write
from hostjit.saving.programs import ProgramReader, ProgramWriter

CUBIN = b"\x7fELF\x02\x01\x01\x00\xff\x00bytes"
PTX = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p){ret;}\n"


def program_of(code: Any, language: str | None = None) -> _C.CompiledProgram:
    """A program that launches a kernel on its input."""
    kernel = hostjit.kernel(
        code, "k", language=language, parameters=["ptr"], writes=[0], block=32, shared_memory=64
    )
    mode = FakeTensorMode()
    with mode:
        x = torch.empty(128, device="cuda:0")
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    sizes = [[4, 1, 1], [32, 1, 1], 64, [], False, False]
    graph.call_function(LAUNCH, (kernel.number, [], [], [node], [0], [], [], *sizes))
    graph.output((node,))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return _C.CompiledProgram(lower(trace_functional(module, [x], mode).graph_module.graph, "p"))


@pytest.mark.parametrize(("code", "language"), [(CUBIN, None), (PTX, "ptx")])
@pytest.mark.parametrize("with_code", [True, False])
def test_code_of_kernels_is_in_the_file(
    code: Any, language: str | None, with_code: bool, tmp_path: Path
) -> None:
    writer = ProgramWriter()
    program = program_of(code, language)
    writer.add(program)
    write(tmp_path / "p.hostjit", {"programs": writer.described}, writer.members)
    with opened(tmp_path / "p.hostjit") as file:
        reader = ProgramReader(file, writer.described, with_code)
    (read,) = reader.programs
    assert reader.all_linked == with_code
    assert read.program.kernels == program.program.kernels
    assert read.host_ir() == program.host_ir()
    (found,) = read.program.kernels.values()
    assert found == code


def test_an_address_of_this_process_is_refused() -> None:
    with pytest.raises(hostjit.Error, match=r"kernel 'k_\w+' of program 'p' is an address"):
        ProgramWriter().add(program_of(0x7F00))
