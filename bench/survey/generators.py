# SPDX-License-Identifier: Apache-2.0
"""Flows, diffusion, adversaries and codes. Names of matrices are those of textbooks."""
# ruff: noqa: E741, N806

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from cases import ProgramCase, batch, case, fixed, mlp, none
from torch import nn
from torch.distributions import (
    Bernoulli,
    Independent,
    MultivariateNormal,
    Normal,
    kl_divergence,
)

CASES: dict[str, ProgramCase] = {}


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.net = mlp(2, 32, 4)
        self.flip = flip

    def forward(self, x, inverse=False):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, -1)
        s = s.tanh()
        b = (b - t) * (-s).exp() if inverse else b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], -1), (-s if inverse else s).sum(-1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(4))
        self.register_buffer("loc", torch.zeros(4))
        self.register_buffer("cov", torch.eye(4))

    def log_prob(self, x):
        ld = 0
        for l in reversed(self.layers):
            x, d = l(x, True)
            ld = ld + d
        return MultivariateNormal(self.loc, self.cov).log_prob(x) + ld

    def forward(self, x):
        return -self.log_prob(x).mean()


@case(CASES, batch((4,)))
def normalizing_flow_train(how):
    m = Flow()
    f = how(m)
    opt = torch.optim.Adam(m.parameters(), lr=1e-3, eps=1e-4)

    def call(x):
        opt.zero_grad()
        l = f(x)
        l.backward()
        opt.step()
        return l.detach()

    return call, lambda: dict(m.state_dict())


class Res(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(4, i), nn.Conv2d(i, o, 3, padding=1)
        self.t = nn.Linear(16, o)
        self.n2, self.c2 = nn.GroupNorm(4, o), nn.Conv2d(o, o, 3, padding=1)
        self.s = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(t)[:, :, None, None]
        return self.s(x) + self.c2(F.silu(self.n2(h)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Conv2d(3, 8, 3, padding=1)
        self.d1, self.d2 = Res(8, 8), Res(8, 16)
        self.down = nn.Conv2d(8, 8, 3, 2, 1)
        self.m = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.u1 = Res(16, 8)
        self.o = nn.Conv2d(8, 3, 3, padding=1)
        self.t = mlp(16, 16, 16, act=nn.SiLU)

    def forward(self, x, t):
        f = torch.exp(-math.log(10000) * torch.arange(8) / 8)
        e = t[:, None].float() * f
        t = self.t(torch.cat([e.sin(), e.cos()], -1))
        a = self.d1(self.i(x), t)
        b = self.d2(self.down(a), t)
        s = b.flatten(2).transpose(1, 2)
        s = s + self.m(s, s, s, need_weights=False)[0]
        b = s.transpose(1, 2).reshape(b.shape)
        return self.o(self.u1(torch.cat([F.interpolate(self.up(b), size=a.shape[-2:]), a], 1), t))


@case(CASES, lambda n: (torch.randn(1 + n % 3, 3, 8 + 8 * (n % 2), 16),))
def unet(how):
    m = UNet()
    f = how(m)

    def call(x):
        with torch.no_grad():
            return f(x, torch.full((len(x),), 3))

    return call, none


@case(CASES, fixed((2, 3, 8, 8)), steps=4)
def ddpm_sampler(how):
    m = UNet()
    betas = torch.linspace(1e-4, 0.02, 6)
    alphas = 1 - betas
    bar = alphas.cumprod(0)

    @how
    def step(x, i):
        with torch.no_grad():
            t = torch.full((x.shape[0],), i)
            eps = m(x, t)
            mean = (x - betas[i] / (1 - bar[i]).sqrt() * eps) / alphas[i].sqrt()
            return mean + betas[i].sqrt() * torch.randn_like(x) if i > 0 else mean

    def call(x):
        for i in reversed(range(6)):
            x = step(x, i)
        return x

    return call, none


@case(CASES, fixed((2, 3, 8, 8)), steps=3)
def ddim_sampler_whole(how):
    m = UNet()
    bar = torch.linspace(0.99, 0.1, 6)

    @how
    def sample(x):
        with torch.no_grad():
            for i in reversed(range(1, 6)):
                eps = m(x, torch.full((x.shape[0],), i))
                x0 = (x - (1 - bar[i]).sqrt() * eps) / bar[i].sqrt()
                x = bar[i - 1].sqrt() * x0.clamp(-1, 1) + (1 - bar[i - 1]).sqrt() * eps
            return x

    return sample, none


@case(CASES, fixed((2, 3, 8, 8)), steps=4)
def unet_train_ema(how):
    m = UNet()
    ema = copy.deepcopy(m).requires_grad_(False)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, eps=1e-4)
    bar = torch.linspace(0.99, 0.1, 6)

    @how
    def loss(x):
        t = torch.randint(0, 6, (x.shape[0],))
        noise = torch.randn_like(x)
        a = bar[t].view(-1, 1, 1, 1)
        return F.mse_loss(m(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)

    @how
    def update():
        with torch.no_grad():
            for e, p in zip(ema.parameters(), m.parameters(), strict=False):
                e.lerp_(p, 0.01)

    def call(x):
        opt.zero_grad()
        l = loss(x)
        l.backward()
        opt.step()
        update()
        return l.detach()

    return call, lambda: {"m": dict(m.state_dict()), "e": dict(ema.state_dict())}


@case(CASES, lambda n: (torch.randn(8 + n % 3, 3), torch.randn(8 + n % 3, 3)))
def nerf(how):
    net = mlp(27, 32, 32, 4, act=nn.ReLU)

    @how
    def render(o, d):
        d = F.normalize(d, dim=-1)
        z = torch.linspace(0.1, 1, 8).expand(o.shape[0], 8) + torch.rand(o.shape[0], 8) * 0.05
        p = o[:, None] + z[..., None] * d[:, None]
        freq = 2.0 ** torch.arange(4)
        e = torch.cat(
            [
                p,
                *(
                    (p[..., None, :] * freq[:, None]).flatten(-2).sin(),
                    (p[..., None, :] * freq[:, None]).flatten(-2).cos(),
                ),
            ],
            -1,
        )
        rgb, sigma = net(e).split([3, 1], -1)
        rgb, sigma = rgb.sigmoid(), sigma.squeeze(-1).relu()
        delta = torch.cat([z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)], -1)
        alpha = 1 - (-sigma * delta).exp()
        T = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[
            :, :-1
        ]
        w = alpha * T
        return (w[..., None] * rgb).sum(1), (w * z).sum(1)

    return render, none


@case(CASES, batch((6,)))
def vae_train(how):
    enc, dec = mlp(6, 16, 8), mlp(4, 16, 6)
    params = [*enc.parameters(), *dec.parameters()]
    opt = torch.optim.Adam(params, lr=1e-3, eps=1e-4)

    @how
    def loss(x):
        mu, lv = enc(x).chunk(2, -1)
        q = Independent(Normal(mu, (lv / 2).exp()), 1)
        z = q.rsample()
        p = Independent(Normal(torch.zeros_like(mu), torch.ones_like(mu)), 1)
        return (
            kl_divergence(q, p) - Bernoulli(logits=dec(z)).log_prob((x > 0).float()).sum(-1)
        ).mean()

    def call(x):
        opt.zero_grad()
        l = loss(x)
        l.backward()
        opt.step()
        return l.detach()

    return call, lambda: {"p": [p.detach() for p in params]}


@case(CASES, lambda n: (torch.randn(4 + n % 3, 3, 16, 16),), steps=4)
def gan_step(how):
    g = nn.Sequential(
        nn.ConvTranspose2d(8, 8, 4),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 4, 4),
        nn.Tanh(),
    )
    d = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 4, 4)),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(128, 1),
    )
    go, do = (
        torch.optim.Adam(g.parameters(), lr=1e-3, eps=1e-4),
        torch.optim.Adam(d.parameters(), lr=1e-3, eps=1e-4),
    )

    @how
    def step(x):
        fake = g(torch.randn(x.shape[0], 8, 1, 1))
        dl = F.softplus(-d(x)).mean() + F.softplus(d(fake.detach())).mean()
        do.zero_grad()
        dl.backward()
        do.step()
        gl = F.softplus(-d(fake)).mean()
        go.zero_grad()
        gl.backward()
        go.step()
        return dl.detach(), gl.detach()

    return step, lambda: {"g": dict(g.state_dict()), "d": dict(d.state_dict())}


@case(CASES, lambda n: (torch.randn(3 + n % 3, 8), torch.randn(3 + n % 3, 8)))
def contrastive(how):
    enc = mlp(8, 16, 8)
    scale = nn.Parameter(torch.tensor(1.0))

    @how
    def f(a, b):
        a, b = F.normalize(enc(a), dim=-1), F.normalize(enc(b), dim=-1)
        logits = a @ b.T * scale.exp()
        t = torch.arange(len(a))
        return (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2

    return f, none


@case(CASES, lambda n: (torch.randn(2 + n % 3, 16, 8),))
def vq(how):
    book = nn.Embedding(10, 8)

    @how
    def f(x):
        d = torch.cdist(x.flatten(0, 1), book.weight)
        i = d.argmin(-1)
        q = book(i).view_as(x)
        loss = F.mse_loss(q.detach(), x) + F.mse_loss(q, x.detach())
        q = x + (q - x).detach()
        p = F.one_hot(i, 10).float().mean(0)
        return q, loss, torch.exp(-(p * (p + 1e-10).log()).sum()), i

    return f, none


@case(CASES, lambda n: (torch.randn(2 + n % 3, 3, 12, 12), torch.randn(2 + n % 3, 2, 3)))
def spatial_transformer(how):
    @how
    def f(x, t):
        return F.grid_sample(
            x, F.affine_grid(t, list(x.shape), align_corners=False), align_corners=False
        )

    return f, none
