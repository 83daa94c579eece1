# SPDX-License-Identifier: Apache-2.0
"""Streams, recurrent networks and graphs. Names of matrices are those of textbooks."""
# ruff: noqa: E741, N806

from __future__ import annotations

import torch
import torch.nn.functional as F
from cases import ProgramCase, batch, case, fixed, mlp, none
from torch import nn

CASES: dict[str, ProgramCase] = {}


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.e = nn.Linear(5, 16), nn.Linear(16, 3), nn.Linear(10, 16)

    def forward(self, x, edges):
        src, dst = edges
        deg = torch.zeros(x.shape[0]).index_add_(0, dst, torch.ones(dst.shape[0])).clamp(min=1)
        h = torch.zeros(x.shape[0], 16).index_add(0, dst, self.a(x)[src] / deg[dst, None])
        m = self.e(torch.cat([x[src], x[dst]], -1)).relu()
        h = h + torch.zeros_like(h).scatter_reduce(
            0, dst[:, None].expand_as(m), m, "amax", include_self=False
        )
        score = (h[src] * h[dst]).sum(-1)
        ex = (score - score.max()).exp()
        att = ex / torch.zeros(x.shape[0]).scatter_add(0, dst, ex)[dst]
        h = torch.zeros_like(h).index_add_(0, dst, att[:, None] * h[src])
        return self.b(h.relu()).log_softmax(-1)


def graph(n):
    nodes, edges = 6 + n % 3, 14 + n % 4
    return torch.randn(nodes, 5), torch.randint(0, nodes, (2, edges))


@case(CASES, graph)
def gnn(how):
    m = GCN()
    f = how(m)

    def call(*a):
        with torch.no_grad():
            return f(*a)

    return call, none


@case(CASES, graph)
def gnn_train(how):
    m = GCN()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    @how
    def loss(x, e):
        return F.nll_loss(m(x, e), torch.arange(x.shape[0]) % 3)

    def call(x, e):
        opt.zero_grad()
        l = loss(x, e)
        l.backward()
        opt.step()
        return l.detach()

    return call, lambda: dict(m.state_dict())


@case(CASES, batch((4,)))
def neural_ode_rk4(how):
    net = mlp(5, 32, 4)

    def f(t, y):
        return net(torch.cat([y, torch.full_like(y[:, :1], t)], -1))

    @how
    def odeint(y, steps=6, dt=0.1):
        t = 0.0
        ys = [y]
        for _ in range(steps):
            k1 = f(t, y)
            k2 = f(t + dt / 2, y + dt / 2 * k1)
            k3 = f(t + dt / 2, y + dt / 2 * k2)
            k4 = f(t + dt, y + dt * k3)
            y = y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            t += dt
            ys.append(y)
        return torch.stack(ys)

    return odeint, none


@case(CASES, batch((4,)))
def adaptive_ode(how):
    net = mlp(4, 16, 4)

    @how
    def f(y):
        with torch.no_grad():
            t, dt, n = 0.0, 0.1, 0
            while t < 1.0 and n < 30:
                a = y + dt * net(y)
                b = y + dt * net((y + a) / 2)
                err = (a - b).abs().max().item()
                n += 1
                if err < 1e-1:
                    y = b
                    t += dt
                    dt *= 1.2
                else:
                    dt *= 0.5
            return y

    return f, none


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Conv1d(1, 8, 1)
        self.convs = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(4))
        self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(4))
        self.end = nn.Conv1d(8, 1, 1)

    def forward(self, x):
        h = self.start(x)
        total = 0
        for c, s, i in zip(self.convs, self.skips, range(4), strict=False):
            f, g = c(F.pad(h, (2**i, 0))).chunk(2, 1)
            z = f.tanh() * g.sigmoid()
            total = total + s(z)
            h = h + z
        return self.end(total.relu())


@case(CASES, lambda n: (torch.randn(1 + n % 3, 1, 32 + 4 * (n % 2)),))
def wavenet(how):
    m = WaveNet()
    return how(m), none


class Streaming(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(8, 8, 3, dilation=2**i) for i in range(3))
        for i in range(3):
            self.register_buffer(f"ring{i}", torch.zeros(1, 8, 2 * 2**i + 1))
        self.pos = 0

    def forward(self, x):
        for i, c in enumerate(self.convs):
            ring = getattr(self, f"ring{i}")
            ring.copy_(torch.roll(ring, -1, -1))
            ring[:, :, -1] = x
            x = x + F.conv1d(ring, c.weight, c.bias, dilation=2**i)[:, :, -1].tanh()
        self.pos += 1
        return x


@case(CASES, fixed((1, 8)))
def streaming_conv(how):
    m = Streaming()
    f = how(m)

    def call(x):
        with torch.no_grad():
            return f(x)

    return call, lambda: dict(m.named_buffers())


class Ring(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buf", torch.zeros(16, 4))
        self.head = 0
        self.net = mlp(16, 16, 2)

    def forward(self, x):
        self.buf[self.head] = x
        self.head = (self.head + 1) % 16
        idx = [(self.head - 1 - k) % 16 for k in range(4)]
        return self.net(self.buf[idx].flatten())


@case(CASES, fixed((4,)), steps=20)
def ring_buffer(how):
    m = Ring()
    f = how(m)

    def call(x):
        with torch.no_grad():
            return f(x)

    return call, lambda: {"b": m.buf}


@case(CASES, fixed((1, 6)))
def lstm_cell_steps(how):
    cell, out = nn.LSTMCell(6, 16), nn.Linear(16, 2)
    state = {"s": (torch.zeros(1, 16), torch.zeros(1, 16))}

    @how
    def step(x, s):
        h, c = cell(x, s)
        return out(h), (h, c)

    def call(x):
        with torch.no_grad():
            y, state["s"] = step(x, state["s"])
        return y

    return call, lambda: dict(state)


@case(CASES, fixed((1, 1, 6)))
def gru_stream(how):
    gru = nn.GRU(6, 16, 2, batch_first=True)
    state = {"h": None}
    f = how(gru)

    def call(x):
        with torch.no_grad():
            y, state["h"] = f(x, state["h"])
        return y

    return call, lambda: dict(state)


@case(CASES, lambda n: (torch.randn(3 + n % 3, 5, 8), torch.randint(1, 6, (3 + n % 3,))))
def packed_lstm(how):
    lstm = nn.LSTM(8, 16, batch_first=True)

    @how
    def f(x, lengths):
        with torch.no_grad():
            p = nn.utils.rnn.pack_padded_sequence(
                x, lengths, batch_first=True, enforce_sorted=False
            )
            o, (h, _c) = lstm(p)
            return nn.utils.rnn.pad_packed_sequence(o, batch_first=True)[0], h

    return f, none


@case(
    CASES,
    lambda n: (torch.randn(6, 2 + n % 2, 5).log_softmax(-1), torch.randint(1, 5, (2 + n % 2, 3))),
)
def ctc(how):
    @how
    def f(lp, t):
        return F.ctc_loss(lp, t, torch.full((lp.shape[1],), 6), torch.full((lp.shape[1],), 3))

    return f, none


@case(CASES, lambda n: (torch.randint(0, 20, (3 + n % 3, 6)),))
def beam_search(how):
    emb, gru, out = nn.Embedding(20, 16), nn.GRUCell(16, 16), nn.Linear(16, 20)

    @how
    def f(src):
        with torch.no_grad():
            h = torch.zeros(src.shape[0], 16)
            for t in range(6):
                h = gru(emb(src[:, t]), h)
            B, K = src.shape[0], 3
            h = h.repeat_interleave(K, 0)
            tok = torch.zeros(B * K, dtype=torch.long)
            score = torch.tensor([0.0, -1e9, -1e9]).repeat(B)
            seq = torch.zeros(B * K, 0, dtype=torch.long)
            for _ in range(5):
                h = gru(emb(tok), h)
                lp = out(h).log_softmax(-1) + score[:, None]
                score, idx = lp.view(B, -1).topk(K)
                beam = idx // 20 + torch.arange(B)[:, None] * K
                tok = (idx % 20).flatten()
                h = h[beam.flatten()]
                seq = torch.cat([seq[beam.flatten()], tok[:, None]], 1)
                score = score.flatten()
            return seq.view(B, K, -1), score.view(B, K)

    return f, none


@case(CASES, lambda n: (torch.randn(2 + n % 3, 12, 8),))
def moe_gather(how):
    gate = nn.Linear(8, 4)
    w1, w2 = nn.Parameter(torch.randn(4, 8, 16) / 3), nn.Parameter(torch.randn(4, 16, 8) / 4)

    @how
    def f(x):
        with torch.no_grad():
            flat = x.reshape(-1, 8)
            p = gate(flat).softmax(-1)
            w, i = p.topk(2)
            out = torch.zeros_like(flat)
            for e in range(4):
                rows, k = torch.where(i == e)
                out.index_add_(0, rows, (flat[rows] @ w1[e]).relu() @ w2[e] * w[rows, k, None])
            return out.view_as(x)

    return f, none


@case(CASES, lambda n: (torch.randn(2 + n % 3, 10, 8),))
def s4_scan(how):
    A, B, C = -torch.rand(8, 4), torch.randn(8, 4), torch.randn(8, 4)
    dt = nn.Linear(8, 8)

    @how
    def f(x):
        with torch.no_grad():
            d = F.softplus(dt(x))
            h = torch.zeros(x.shape[0], 8, 4)
            ys = []
            for t in range(x.shape[1]):
                h = (d[:, t, :, None] * A).exp() * h + d[:, t, :, None] * B * x[:, t, :, None]
                ys.append((h * C).sum(-1))
            return torch.stack(ys, 1)

    return f, none


@case(CASES, lambda n: (torch.randn(2, 4, 8), torch.arange(4) + n), steps=8)
def kv_cache(how):
    q, k, v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
    K, V_ = torch.zeros(2, 32, 8), torch.zeros(2, 32, 8)

    @how
    def f(x, pos):
        with torch.no_grad():
            K[:, pos] = k(x)
            V_[:, pos] = v(x)
            m = torch.arange(32)[None] <= pos[:, None]
            return F.scaled_dot_product_attention(q(x), K, V_, attn_mask=m)

    return f, lambda: {"k": K, "v": V_}


@case(CASES, lambda n: (torch.randn(2 + n % 2, 400),))
def spectrogram_cnn(how):
    m = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).eval()
    w = torch.hann_window(64)

    @how
    def f(x):
        with torch.no_grad():
            s = torch.stft(x, 64, 16, window=w, return_complex=True).abs().clamp(min=1e-5).log()
            return m(s[:, None])

    return f, none
