# SPDX-License-Identifier: Apache-2.0
"""Rows of random programs: the code for all sizes does what the program of each row means."""

from __future__ import annotations

import pytest
import torch
from symbolic_programs import SymbolicProgram

from hostjit import _C

SIZES = [(3, 4), (40, 2), (1, 1), (5, 0), (0, 3), (2, 70), (3, 4)]


@pytest.mark.parametrize("seed", range(12))
def test_code_and_evaluator_agree(seed: int) -> None:
    text = SymbolicProgram(seed, num_steps=14).text
    compiled = _C.CompiledProgram(_C.parse(text))
    assert compiled.symbols == ["n", "m"]
    torch.manual_seed(seed)
    for n, m in SIZES:
        inputs = [torch.randn(n, 6), torch.randn(n, m), torch.randn(6, 9)]
        results = []
        for runtime in ("jit", "evaluator"):
            given = [value.clone() for value in inputs]
            results.append([*compiled.run(given, runtime=runtime), *given])
        for found, wanted in zip(*results, strict=True):
            assert found.stride() == wanted.stride(), text
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3, msg=lambda m: m + text)
