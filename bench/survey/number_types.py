# SPDX-License-Identifier: Apache-2.0
"""Integers, sparse and complex numbers. Names of matrices are those of textbooks."""
# ruff: noqa: E741

from __future__ import annotations

import torch
import torch.nn.functional as F
from cases import ProgramCase, batch, case, fixed, none
from torch import nn

CASES: dict[str, ProgramCase] = {}


class Int8(nn.Module):
    def __init__(self):
        super().__init__()
        w = torch.randn(16, 8)
        self.register_buffer("scale", w.abs().amax(1) / 127)
        self.register_buffer("q", (w / self.scale[:, None]).round().to(torch.int8))

    def forward(self, x):
        s = x.abs().amax(-1, keepdim=True) / 127
        xq = (x / s).round().clamp(-128, 127).to(torch.int8)
        acc = xq.to(torch.int32) @ self.q.t().to(torch.int32)
        deq = x @ (self.q.to(x.dtype) * self.scale[:, None]).T
        return acc.float() * s * self.scale, deq


@case(CASES, batch((8,)))
def int8_matmul(how):
    m = Int8()
    return how(m), none


@case(CASES, lambda n: (torch.randn(32, 8),))
def int_mm(how):
    q = torch.randint(-128, 127, (16, 8), dtype=torch.int8)

    @how
    def f(x):
        return torch._int_mm((x * 20).to(torch.int8), q.t()).float() * 0.01

    return f, none


@case(CASES, fixed((8, 4)))
def fake_quant(how):
    lin = nn.Linear(4, 4)

    @how
    def f(x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
        w = torch.fake_quantize_per_channel_affine(
            lin.weight, torch.full((4,), 0.02), torch.zeros(4, dtype=torch.int32), 0, -128, 127
        )
        return F.linear(x, w, lin.bias)

    return f, none


@case(CASES, fixed((8, 4)))
def sparse_mm_buffer(how):
    adj = (torch.rand(8, 8) > 0.6).float().to_sparse()
    lin = nn.Linear(4, 4)

    @how
    def f(x):
        with torch.no_grad():
            return torch.sparse.mm(adj, lin(x)).relu()

    return f, none


@case(CASES, fixed((8, 4)))
def sparse_csr_mm(how):
    adj = (torch.rand(8, 8) > 0.6).float().to_sparse_csr()
    lin = nn.Linear(4, 4)

    @how
    def f(x):
        with torch.no_grad():
            return (adj @ lin(x)).relu()

    return f, none


@case(CASES, lambda n: (torch.randint(0, 8, (2, 10)), torch.rand(10), torch.randn(8, 4)))
def sparse_coo_made(how):
    @how
    def f(i, v, x):
        a = torch.sparse_coo_tensor(i, v, (8, 8))
        return torch.sparse.mm(a, x) * 2

    return f, none


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(8, 8, dtype=torch.cfloat) / 4)
        self.b = nn.Parameter(torch.zeros(8, dtype=torch.cfloat))

    def forward(self, x):
        z = x @ self.w + self.b
        z = torch.complex(z.real.relu(), z.imag.relu())
        z = z * z.abs().clamp(min=1e-3).reciprocal() * (1 + z.angle())
        return z, z.abs().square().sum(-1)


@case(CASES, lambda n: (torch.randn(3 + n % 3, 8, dtype=torch.cfloat),))
def complex_net(how):
    m = Complex()
    f = how(m)

    def call(x):
        with torch.no_grad():
            return f(x)

    return call, none


@case(CASES, lambda n: (torch.randn(3 + n % 3, 8, dtype=torch.cfloat),))
def complex_train(how):
    m = Complex()
    opt = torch.optim.SGD(m.parameters(), lr=0.01)
    f = how(lambda x: m(x)[1].mean())

    def call(x):
        opt.zero_grad()
        l = f(x)
        l.backward()
        opt.step()
        return l.detach()

    return call, lambda: dict(m.state_dict())


class FNO(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4, 5, dtype=torch.cfloat) / 4)
        self.p = nn.Conv1d(4, 4, 1)

    def forward(self, x):
        f = torch.fft.rfft(x)
        o = torch.zeros_like(f)
        o[:, :, :5] = torch.einsum("bix,iox->box", f[:, :, :5], self.w)
        return F.gelu(torch.fft.irfft(o, n=x.shape[-1]) + self.p(x))


@case(CASES, lambda n: (torch.randn(2 + n % 3, 4, 16 + 4 * (n % 2)),))
def fourier_operator(how):
    m = FNO()
    f = how(m)

    def call(x):
        with torch.no_grad():
            return f(x)

    return call, none


@case(CASES, lambda n: (torch.randn(2 + n % 3, 4, 16),))
def fourier_operator_train(how):
    m = FNO()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    f = how(lambda x: F.mse_loss(m(x), x))

    def call(x):
        opt.zero_grad()
        l = f(x)
        l.backward()
        opt.step()
        return l.detach()

    return call, lambda: dict(m.state_dict())
