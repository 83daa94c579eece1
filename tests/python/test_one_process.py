# SPDX-License-Identifier: Apache-2.0
"""hostjit's LLVM and llvmlite's live in one process, whichever was loaded first."""

from __future__ import annotations

import subprocess
import sys

import pytest

HOSTJIT = """
import torch, hostjit
with torch.no_grad():
    fast = hostjit.compile(lambda x: torch.tanh(x) + 1)
    torch.testing.assert_close(fast(torch.ones(64)), torch.tanh(torch.ones(64)) + 1)
"""
LLVMLITE = """
import ctypes
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
module = llvm.parse_assembly("define i64 @twice(i64 %x) { %y = add i64 %x, %x ret i64 %y }")
machine = llvm.Target.from_default_triple().create_target_machine()
engine = llvm.create_mcjit_compiler(module, machine)
engine.finalize_object()
twice = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address("twice"))
assert twice(21) == 42
"""


@pytest.mark.parametrize("parts", [(HOSTJIT, LLVMLITE), (LLVMLITE, HOSTJIT)])
def test_both_compile(parts: tuple[str, str]) -> None:
    text = "".join(parts) + "\n" + "".join(parts)
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
