# SPDX-License-Identifier: Apache-2.0
"""The kernel that updates a parameter: it writes what it reads, and takes numbers of the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_programs import optimizer_program
from emulation import emulated

from hostjit.kernels import PointwiseKernel
from hostjit.kernels.cuda import cuda_kernel
from hostjit.lowering import cuda_launches

LR, BETAS, DECAY, EPS = 1e-2, (0.9, 0.999), 0.1, 1e-8


@pytest.mark.parametrize("size", [4096, 1003, 5])
def test_updates_are_those_of_eager(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[PointwiseKernel] = []

    def noted(kernel: PointwiseKernel) -> Any:
        kernels.append(kernel)
        return cuda_kernel(kernel)

    monkeypatch.setattr(cuda_launches, "cuda_kernel", noted)
    program = optimizer_program(
        lambda params: torch.optim.AdamW(params, LR, BETAS, EPS, DECAY, foreach=True), [(size,)]
    )
    (launch,) = [op for op in program.ops if op.name == "launch_kernel" and "_cuda" in op.kernel]
    assert len(launch.inputs) == 1 and len(launch.in_out) == 3 and len(launch.scalars) == 6
    (update,) = emulated(kernels)

    torch.manual_seed(0)
    param = torch.nn.Parameter(torch.randn(size))
    eager = torch.optim.AdamW([param], LR, BETAS, EPS, DECAY, foreach=False)
    found, mean, square = param.detach().clone(), torch.zeros(size), torch.zeros(size)
    for step in range(1, 5):
        param.grad = torch.randn(size)
        eager.step()
        corrected = LR / (1 - BETAS[0] ** step), (1 - BETAS[1] ** step) ** 0.5
        numbers = (1 - LR * DECAY, 1 - BETAS[0], BETAS[1], 1 - BETAS[1], corrected[1], corrected[0])
        update(param.grad, mean, square, found, *numbers)
        state = eager.state[param]
        torch.testing.assert_close(mean, state["exp_avg"])
        torch.testing.assert_close(square, state["exp_avg_sq"])
        torch.testing.assert_close(found, param.detach())
