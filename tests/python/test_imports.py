# SPDX-License-Identifier: Apache-2.0
"""What `import hostjit` brings with it, and that Dynamo knows hostjit whenever it comes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# What compiles, and takes as long to import as torch does.
SLOW = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy", "llvmlite")

MEETS_COMPILED = """
compiled = hostjit.compile(lambda x: x + 1)
whole = torch.compile(lambda x: compiled(x) * 2, backend="eager", fullgraph=True)
assert whole(torch.ones(2)).tolist() == [4.0, 4.0]
"""
IS_A_BACKEND = """
assert torch.compile(lambda x: x + 1, backend="hostjit")(torch.ones(2)).tolist() == [2.0, 2.0]
import hostjit.backend
assert torch._dynamo.lookup_backend("hostjit") is hostjit.backend.compile_graph
"""
COPIES = """
import copy
assert copy.copy(hostjit.compile(len))([1]) == 1
"""


def _run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_importing_hostjit_imports_nothing_slow() -> None:
    _run(
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import hostjit\n"
        f"found = [m for m in {SLOW} if m in sys.modules and m not in before]\n"
        "assert not found, found\n"
    )


FIRST = ("import torch._dynamo", "import hostjit", "import hostjit.backend")


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("code", [MEETS_COMPILED, IS_A_BACKEND, COPIES])
def test_dynamo_knows_hostjit_in_any_order_of_imports(first: str, code: str) -> None:
    _run(f"{first}\nimport torch, hostjit\n{code}")


def test_the_loader_of_dynamo_is_as_python_made_it() -> None:
    _run(
        "import sys, hostjit\n"
        "import torch._dynamo\n"
        "assert 'exec_module' not in vars(torch._dynamo.__loader__)\n"
        "assert not [f for f in sys.meta_path if type(f).__module__.startswith('hostjit')]\n"
    )


def test_code_that_only_looks_for_dynamo_hides_it_from_nobody() -> None:
    _run(
        "import importlib.util, sys, hostjit\n"
        "assert importlib.util.find_spec('torch._dynamo') is not None\n"
        "import torch._dynamo\n"
        "assert 'hostjit.backend' in sys.modules\n"
    )


def test_names_that_come_later_are_there() -> None:
    _run(
        "import hostjit\n"
        "assert all(getattr(hostjit, name) is not None for name in hostjit.__all__)\n"
        "assert callable(hostjit.compile) and callable(hostjit.capture)\n"
    )
