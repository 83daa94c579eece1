# SPDX-License-Identifier: Apache-2.0
"""Programs that compute gradients, train, and switch modes between calls."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from program_list import Programs, Step, Wrap
from torch import nn

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()
program = PROGRAMS.register
randn = torch.randn


@program
def nograd_toggle(wrap: Wrap) -> Step:
    m = nn.Linear(3, 3)
    f = wrap(m)

    def call(i):
        x = randn(2, 3)
        with torch.set_grad_enabled(i % 2 == 0):
            y = f(x)
        return (y, y.requires_grad)

    return call


@program
def requires_grad_toggle(wrap: Wrap) -> Step:
    m = nn.Linear(3, 3)
    f = wrap(lambda x: m(x).sum())

    def call(i):
        m.weight.requires_grad_(i % 3 != 1)
        x = randn(2, 3).requires_grad_(i % 2 == 0)
        y = f(x)
        if y.requires_grad:
            y.backward()
        return (y.detach(), y.requires_grad, m.weight.grad, x.grad)

    return call


@program
def ema(wrap: Wrap) -> Step:
    m = nn.Linear(2, 2)
    t = copy.deepcopy(m)

    @torch.no_grad()
    def g(x):
        for a, b in zip(t.parameters(), m.parameters(), strict=True):
            a.lerp_(b, 0.1)
        return t(x)

    f = wrap(g)

    def call(i):
        with torch.no_grad():
            for p in m.parameters():
                p.add_(0.1)
        return (f(randn(1, 2)), [p.detach().clone() for p in t.parameters()])

    return call


@program
def clip(wrap: Wrap) -> Step:
    m = nn.Linear(3, 1)
    o = torch.optim.SGD(m.parameters(), 0.1)

    def g(x):
        loss = m(x).square().sum()
        loss.backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
        o.zero_grad(set_to_none=False)
        return (loss.detach(), n)

    f = wrap(g)
    return lambda i: (f(randn(4, 3)), m.weight.detach().clone(), m.weight.grad.clone())


@program
def accumulate_every(wrap: Wrap) -> Step:
    m = nn.Linear(3, 1)
    o = torch.optim.SGD(m.parameters(), 0.1)

    def g(x, step):
        loss = m(x).square().mean()
        loss.backward()
        if step:
            o.step()
            o.zero_grad()
        return loss.detach()

    f = wrap(g)
    return lambda i: (
        f(randn(4, 3), i % 2 == 1),
        m.weight.detach().clone(),
        None if m.weight.grad is None else m.weight.grad.clone(),
    )


@program
def scheduler(wrap: Wrap) -> Step:
    m = nn.Linear(3, 1)
    o = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    s = torch.optim.lr_scheduler.StepLR(o, 2, 0.5)

    def g(x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return loss.detach()

    f = wrap(g)

    def call(i):
        r = f(randn(4, 3))
        s.step()
        return (r, m.weight.detach().clone())

    return call


@program
def normal_dist(wrap: Wrap) -> Step:
    ls = nn.Parameter(torch.zeros(3))

    def g(m):
        d = torch.distributions.Normal(m, ls.exp())
        a = d.rsample()
        return (a, d.log_prob(a).sum())

    f = wrap(g)

    def call(i):
        a, loss = f(randn(3))
        loss.backward()
        return (a.detach(), loss.detach(), ls.grad.clone())

    return call


@program
def grad_strides(wrap: Wrap) -> Step:
    w = nn.Parameter(randn(3, 4))

    def g(x):
        (w * x).sum().backward()
        return w.grad * 2

    f = wrap(g)

    def call(i):
        if i == 4:
            w.grad = randn(4, 3).t()
        if i == 6:
            w.grad = randn(3, 4)
        if i == 7:
            w.requires_grad_(True)
            w.grad = torch.empty_strided((3, 4), (1, 3)).fill_(2)
        return (f(randn(3, 4)).contiguous(), w.grad.contiguous().clone())

    return call


@program
def inference_toggle(wrap: Wrap) -> Step:
    m = nn.Linear(2, 2)
    f = wrap(m)

    def call(i):
        with torch.inference_mode() if i % 2 else torch.no_grad():
            y = f(torch.ones(1, 2) * i)
        return (y.clone(), y.is_inference())

    return call


@program
def autocast_inside(wrap: Wrap) -> Step:
    m = nn.Linear(4, 4)

    def g(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = m(x)
        return y.float().sum()

    f = wrap(g)

    def call(i):
        m.zero_grad()
        y = f(randn(2, 4))
        y.backward()
        return (y.detach(), m.weight.grad.clone())

    return call


@program
def grad_of_output_twice(wrap: Wrap) -> Step:
    w = nn.Parameter(randn(3))
    f = wrap(lambda x: (w * x).sum())

    def call(i):
        w.grad = None
        y = f(randn(3))
        y.backward(retain_graph=True)
        y.backward()
        return w.grad.clone()

    return call


@program
def mask_loss_train(wrap: Wrap) -> Step:
    m = nn.Linear(3, 1)
    o = torch.optim.SGD(m.parameters(), 0.1)

    def g(x, mask):
        o.zero_grad()
        loss = m(x).squeeze(1)
        loss = loss[mask].square().mean()
        loss.backward()
        o.step()
        return loss.detach()

    f = wrap(g)
    return lambda i: (f(randn(6, 3), torch.arange(6) < 3 + i % 2), m.weight.detach().clone())


@program
def mask_grad_out(wrap: Wrap) -> Step:
    w = nn.Parameter(randn(5))
    f = wrap(lambda x, m: (w * x)[m].sum() + torch.masked_select(w, m[None, :].expand(2, 5)).sum())

    def call(i):
        w.grad = None
        y = f(randn(5), torch.arange(5) < 2 + i % 2)
        y.backward()
        return (y.detach(), w.grad.clone())

    return call


@program
def lstm_train(wrap: Wrap) -> Step:
    m = nn.LSTM(2, 3)

    def g(x):
        y, _ = m(x)
        return y.square().sum()

    f = wrap(g)

    def call(i):
        m.zero_grad()
        y = f(randn(4, 1, 2))
        y.backward()
        return (y.detach(), [p.grad.clone() for p in m.parameters()])

    return call


@program
def lstm_step(wrap: Wrap) -> Step:
    m = nn.LSTM(2, 3, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
    o = torch.optim.Adam(m.parameters(), 0.1)

    def g(x):
        o.zero_grad()
        y, _ = m(x)
        loss = y.square().sum()
        loss.backward()
        o.step()
        return loss.detach()

    f = wrap(g)
    return lambda i: (f(randn(4, 3, 2)), [p.detach().clone() for p in m.parameters()])


@program
def try_training(wrap: Wrap) -> Step:
    m = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1))
    o = torch.optim.AdamW(m.parameters(), 0.1)

    def g(x, y):
        try:
            o.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            o.step()
            return loss.detach()
        except RuntimeError:
            raise

    f = wrap(g)
    return lambda i: (f(randn(5, 3), randn(5, 1)), [q.detach().clone() for q in m.parameters()])
