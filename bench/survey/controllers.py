# SPDX-License-Identifier: Apache-2.0
"""Filters, planners, controllers and bodies. Names of matrices are those of textbooks."""
# ruff: noqa: E741, N806

from __future__ import annotations

import torch
import torch.nn.functional as F
from cases import ProgramCase, batch, case, fixed, mlp, none
from torch import nn

CASES: dict[str, ProgramCase] = {}


class Kalman(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("A", torch.eye(4) + 0.1 * torch.diag(torch.ones(2), 2))
        self.register_buffer("H", torch.eye(2, 4))
        self.register_buffer("Q", 0.01 * torch.eye(4))
        self.register_buffer("R", 0.1 * torch.eye(2))
        self.register_buffer("x", torch.zeros(4))
        self.register_buffer("P", torch.eye(4))

    def forward(self, z):
        x = self.A @ self.x
        P = self.A @ self.P @ self.A.T + self.Q
        S = self.H @ P @ self.H.T + self.R
        K = torch.linalg.solve(S, self.H @ P).T
        self.x = x + K @ (z - self.H @ x)
        self.P = (torch.eye(4) - K @ self.H) @ P
        return self.x


@case(CASES, fixed((2,)))
def kalman(how):
    m = Kalman()
    f = how(m)

    def call(z):
        with torch.no_grad():
            return f(z)

    return call, lambda: dict(m.state_dict())


@case(CASES, fixed((4,), (3, 8, 2)))
def ekf_cholesky(how):
    @how
    def f(x, zs):
        P = torch.eye(4)
        for z in zs[0]:
            F_ = torch.func.jacrev(
                lambda s: torch.stack(
                    [s[0] + 0.1 * s[2].cos() * s[3], s[1] + 0.1 * s[2].sin() * s[3], s[2], s[3]]
                )
            )(x)
            x = torch.stack(
                [x[0] + 0.1 * x[2].cos() * x[3], x[1] + 0.1 * x[2].sin() * x[3], x[2], x[3]]
            )
            P = F_ @ P @ F_.T + 0.01 * torch.eye(4)
            H = torch.eye(2, 4)
            S = H @ P @ H.T + 0.1 * torch.eye(2)
            L = torch.linalg.cholesky(S)
            K = torch.cholesky_solve(H @ P, L).T
            x = x + K @ (z - x[:2])
            P = P - K @ H @ P
        return x, P

    return f, none


@case(CASES, fixed((4,), (10, 1)), steps=4)
def ilqr(how):
    A = torch.tensor([[1, 0.1, 0, 0], [0, 1, 0.1, 0], [0, 0, 1, 0.1], [0, 0, 0, 1.0]])
    B = torch.tensor([[0], [0], [0], [0.1]])
    Q, R = torch.eye(4), 0.1 * torch.eye(1)

    @how
    def f(x0, us):
        for _ in range(2):
            xs = [x0]
            for u in us:
                xs.append(A @ xs[-1] + B @ u)
            V, v = Q, Q @ xs[-1]
            Ks, ks = [], []
            for x, u in zip(reversed(xs[:-1]), reversed(list(us)), strict=False):
                Qx = Q @ x + A.T @ v
                Qu = R @ u + B.T @ v
                Qxx = Q + A.T @ V @ A
                Quu = R + B.T @ V @ B
                Qux = B.T @ V @ A
                inv = torch.linalg.inv(Quu)
                K, k = -inv @ Qux, -inv @ Qu
                V = Qxx + K.T @ Quu @ K + K.T @ Qux + Qux.T @ K
                v = Qx + K.T @ Quu @ k + K.T @ Qu + Qux.T @ k
                Ks.insert(0, K)
                ks.insert(0, k)
            x = x0
            new = []
            for K, k, xr, u in zip(Ks, ks, xs, us, strict=False):
                un = u + k + K @ (x - xr)
                new.append(un)
                x = A @ x + B @ un
            us = torch.stack(new)
        return us, x

    return f, none


@case(CASES, fixed((4,)), steps=6)
def mppi(how):
    net = mlp(5, 32, 4)

    @how
    def f(x):
        with torch.no_grad():
            noise = 0.5 * torch.randn(32, 8, 1)
            s = x.expand(32, 4)
            cost = torch.zeros(32)
            for t in range(8):
                s = s + 0.1 * net(torch.cat([s, noise[:, t]], -1))
                cost = cost + s.square().sum(-1)
            w = torch.softmax(-(cost - cost.min()) / 0.1, 0)
            return (w[:, None, None] * noise).sum(0)

    return f, none


class PID(nn.Module):
    def __init__(self):
        super().__init__()
        self.kp, self.ki, self.kd, self.dt = 1.0, 0.1, 0.05, 0.01
        self.integral = torch.zeros(3)
        self.last = torch.zeros(3)
        self.t = 0.0

    def forward(self, e):
        self.integral = (self.integral + e * self.dt).clamp(-1, 1)
        d = (e - self.last) / self.dt
        self.last = e
        self.t += self.dt
        return self.kp * e + self.ki * self.integral + self.kd * d


@case(CASES, fixed((3,)))
def pid(how):
    m = PID()
    return how(m), lambda: {"i": m.integral, "l": m.last}


@case(CASES, fixed((3,), (3,)), steps=6)
def hessian_newton(how):
    @how
    def f(x, a):
        def cost(x):
            return ((x - a) ** 4).sum() + (x * x.roll(1)).sum() + x.square().sum()

        for _ in range(3):
            x = x - torch.linalg.solve(
                torch.func.hessian(cost)(x) + torch.eye(3), torch.func.grad(cost)(x)
            )
        return x

    return f, none


@case(CASES, fixed((6, 3), (6, 3)), steps=6)
def nbody(how):
    @how
    def f(p, v):
        for _ in range(5):
            d = p[None] - p[:, None]
            r = d.square().sum(-1) + 0.01
            v = v + 0.01 * (d * r.pow(-1.5)[..., None]).sum(1)
            p = p + 0.01 * v
        return p, v, 0.5 * v.square().sum()

    return f, none


@case(CASES, fixed((16, 16)), steps=6)
def heat_equation(how):
    @how
    def f(u):
        u = u.clone()
        for _ in range(4):
            u[1:-1, 1:-1] += 0.1 * (
                u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
            )
            u[0], u[-1] = u[1], u[-2]
        return u

    return f, none


@case(CASES, lambda n: (torch.randn(5 + n % 3, 2) * 0.5, torch.randn(5 + n % 3, 2)))
def bouncing_balls(how):
    @how
    def f(p, v):
        p = p + 0.1 * v
        hit = p.abs() > 1
        v = torch.where(hit, -v, v)
        p = p.clamp(-1, 1)
        d = torch.cdist(p, p) + 10 * torch.eye(p.shape[0])
        i, j = torch.triu_indices(p.shape[0], p.shape[0], 1)
        close = (d[i, j] < 0.3).float()[:, None]
        n = F.normalize(p[i] - p[j], dim=-1)
        imp = ((v[i] - v[j]) * n).sum(-1, keepdim=True) * n * close
        return p, v.index_add(0, i, -imp).index_add(0, j, imp)

    return f, none


@case(CASES, fixed((7,), (7,)))
def cartpole(how):
    @how
    def f(x, u):
        pos, vel, th, om = x[0], x[1], x[2], x[3]
        force = u[0].clamp(-10, 10)
        s, c = torch.sin(th), torch.cos(th)
        tmp = (force + 0.05 * om**2 * s) / 1.1
        thacc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        acc = tmp - 0.05 * thacc * c / 1.1
        n = torch.stack([pos + 0.02 * vel, vel + 0.02 * acc, th + 0.02 * om, om + 0.02 * thacc])
        return n, (n[0].abs() > 2.4) | (n[2].abs() > 0.2)

    return f, none


@case(CASES, batch((4,)))
def quaternion_fk(how):
    axes = F.normalize(torch.randn(4, 3), dim=-1)
    offs = torch.randn(4, 3)

    @how
    def f(q):
        R = torch.eye(3).expand(q.shape[0], 3, 3)
        p = torch.zeros(q.shape[0], 3)
        for k in range(4):
            a = axes[k]
            K = torch.tensor([[0, -1, 0], [1, 0, 0], [0, 0, 0.0]]) * a[2]
            K = K.clone()
            K[0, 2] = a[1]
            K[2, 0] = -a[1]
            K[1, 2] = -a[0]
            K[2, 1] = a[0]
            s, c = q[:, k].sin()[:, None, None], q[:, k].cos()[:, None, None]
            R = R @ (torch.eye(3) + s * K + (1 - c) * (K @ K))
            p = p + (R @ offs[k])
        return p, R

    return f, none


@case(CASES, fixed((6, 2)), steps=6)
def ik_gradient(how):
    l = torch.tensor([1.0, 0.8])

    @how
    def f(
        q,
    ):
        q = q.clone().requires_grad_()
        for _ in range(3):
            x = torch.stack(
                [
                    l[0] * q[:, 0].cos() + l[1] * (q[:, 0] + q[:, 1]).cos(),
                    l[0] * q[:, 0].sin() + l[1] * (q[:, 0] + q[:, 1]).sin(),
                ],
                -1,
            )
            (g,) = torch.autograd.grad((x - 0.5).square().sum(), q)
            q = (q - 0.1 * g).detach().requires_grad_()
        return q.detach()

    return f, none


@case(CASES, lambda n: (torch.rand(20, 4) * 10, torch.rand(20)), steps=5)
def nms(how):
    @how
    def f(b, s):
        b = torch.cat([b[:, :2], b[:, :2] + b[:, 2:]], 1)
        order = s.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0]
            keep.append(i)
            if order.numel() == 1:
                break
            r = order[1:]
            xy1 = torch.maximum(b[i, :2], b[r, :2])
            xy2 = torch.minimum(b[i, 2:], b[r, 2:])
            inter = (xy2 - xy1).clamp(min=0).prod(-1)
            area = (b[:, 2:] - b[:, :2]).prod(-1)
            iou = inter / (area[i] + area[r] - inter)
            order = r[iou <= 0.5]
        return torch.stack(keep)

    return f, none


@case(CASES, lambda n: (torch.randn(30, 3), torch.randn(3 + n % 2, 3)))
def kmeans_knn(how):
    @how
    def f(x, c):
        for _ in range(3):
            a = torch.cdist(x, c).argmin(1)
            n = torch.bincount(a, minlength=c.shape[0]).clamp(min=1)
            c = torch.zeros_like(c).index_add_(0, a, x) / n[:, None]
        d, i = torch.cdist(x, x).topk(4, largest=False)
        return c, d[:, 1:], x[i].mean(1)

    return f, none


@case(CASES, lambda n: (torch.randn(5, 3), torch.randn(8 + n % 3, 3), torch.randn(8 + n % 3)))
def gaussian_process(how):
    @how
    def f(xs, x, y):
        def k(a, b):
            return (-0.5 * torch.cdist(a, b).square()).exp()

        L = torch.linalg.cholesky(k(x, x) + 0.1 * torch.eye(len(x)))
        al = torch.cholesky_solve(y[:, None], L)
        ks = k(xs, x)
        v = torch.linalg.solve_triangular(L, ks.T, upper=False)
        return (ks @ al).squeeze(-1), 1 - v.square().sum(0), L.diagonal().log().sum()

    return f, none


@case(CASES, lambda n: (torch.randn(12 + n % 3, 3), torch.randn(12 + n % 3, 3)))
def kabsch_svd(how):
    @how
    def f(a, b):
        a0, b0 = a - a.mean(0), b - b.mean(0)
        U, _S, Vt = torch.linalg.svd(a0.T @ b0)
        d = torch.sign(torch.det(Vt.T @ U.T))
        D = torch.diag(torch.stack([torch.ones(()), torch.ones(()), d]))
        R = Vt.T @ D @ U.T
        return R, (a0 @ R.T - b0).square().mean()

    return f, none
