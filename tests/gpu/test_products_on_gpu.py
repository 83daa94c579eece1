# SPDX-License-Identifier: Apache-2.0
"""Small matrix products on a GPU: kernels' against eager's, and a library's bit by bit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import hostjit

sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "kernels" / "cuda"))

from product_cases import CASES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("name", CASES)
def test_small_products(name: str, runtime: str) -> None:
    case = CASES[name]
    values = [value.cuda() for value in case.values()]
    compiled = hostjit.compile(case.function, runtime=runtime)
    with torch.no_grad():
        found = compiled(*values)
        again = compiled(*values)
    results = list(found) if isinstance(found, list | tuple) else [found]
    case.check(results, [one.cuda() for one in case.expected([v.cpu() for v in values])])
    torch.testing.assert_close(again, found, rtol=0, atol=0)
    program = compiled.host_ir()
    assert "launch_kernel(" in program and "linear(" not in program and "mm(lhs" not in program


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(256, 512), (3, 100, 512)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_a_librarys_product_is_eagers(
    dtype: torch.dtype, shape: tuple[int, ...], bias: bool
) -> None:
    layer = torch.nn.Linear(512, 384, bias=bias, device="cuda", dtype=dtype)
    x = torch.randn(shape, device="cuda", dtype=dtype)
    with torch.no_grad():
        compiled = hostjit.compile(layer)
        found, expected = compiled(x), layer(x)
    assert "linear(" in compiled.host_ir()
    assert torch.equal(found, expected)
