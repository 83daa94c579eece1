# SPDX-License-Identifier: Apache-2.0
"""Acting and learning agents. Names of matrices are those of textbooks."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from cases import ProgramCase, batch, case, fixed, mlp, none
from torch import nn
from torch.distributions import (
    Categorical,
    Normal,
)

CASES: dict[str, ProgramCase] = {}


@case(CASES, batch((6,)))
def ppo_act(how):
    pi, v, log_std = mlp(6, 32, 2), mlp(6, 32, 1), nn.Parameter(torch.zeros(2))

    @how
    def act(obs):
        with torch.no_grad():
            d = Normal(pi(obs), log_std.exp())
            a = d.sample()
            return a, d.log_prob(a).sum(-1), v(obs).squeeze(-1)

    return act, none


@case(CASES, batch((6,)))
def ppo_act_discrete(how):
    pi, v = mlp(6, 32, 4), mlp(6, 32, 1)

    @how
    def act(obs):
        with torch.no_grad():
            d = Categorical(logits=pi(obs))
            a = d.sample()
            return a, d.log_prob(a), d.entropy(), v(obs).squeeze(-1)

    return act, none


@case(CASES, batch((6,), (2,), (), (), ()))
def ppo_update(how):
    pi, v, log_std = mlp(6, 32, 2), mlp(6, 32, 1), nn.Parameter(torch.zeros(2))
    params = [*pi.parameters(), *v.parameters(), log_std]
    opt = torch.optim.Adam(params, lr=1e-3, eps=1e-4)

    @how
    def update(obs, action, old_logp, adv, ret):
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        d = Normal(pi(obs), log_std.exp())
        logp = d.log_prob(action).sum(-1)
        ratio = (logp - old_logp).exp()
        clipped = torch.clamp(ratio, 0.8, 1.2)
        loss = (
            -torch.min(ratio * adv, clipped * adv).mean()
            + 0.5 * F.mse_loss(v(obs).squeeze(-1), ret)
            - 0.01 * d.entropy().sum(-1).mean()
        )
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.5)
        opt.step()
        return loss.detach()

    return update, lambda: {"p": [p.detach() for p in params]}


@case(CASES, fixed((16, 6)))
def gae(how):
    @how
    def f(x):
        rewards, values, dones = x[:, 0], x[:, 1], (x[:, 2] > 1).float()
        adv = torch.zeros_like(rewards)
        last = 0
        for t in reversed(range(len(rewards) - 1)):
            delta = rewards[t] + 0.99 * values[t + 1] * (1 - dones[t]) - values[t]
            last = delta + 0.99 * 0.95 * (1 - dones[t]) * last
            adv[t] = last
        return adv, adv + values

    return f, none


class SAC(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = mlp(6, 32, 4)
        self.q1 = mlp(8, 32, 1)
        self.q2 = mlp(8, 32, 1)
        self.t1, self.t2 = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.log_alpha = nn.Parameter(torch.zeros(()))

    def pi(self, obs):
        mean, log_std = self.actor(obs).chunk(2, -1)
        d = Normal(mean, log_std.clamp(-5, 2).exp())
        u = d.rsample()
        a = torch.tanh(u)
        logp = (d.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(-1, keepdim=True)
        return a, logp


@case(CASES, batch((6,), (2,), (1,), (6,), (1,)))
def sac_update(how):
    m = SAC()
    qopt = torch.optim.Adam([*m.q1.parameters(), *m.q2.parameters()], lr=1e-3, eps=1e-4)
    aopt = torch.optim.Adam(m.actor.parameters(), lr=1e-3, eps=1e-4)
    lopt = torch.optim.Adam([m.log_alpha], lr=1e-3, eps=1e-4)

    @how
    def update(obs, act, rew, nxt, done):
        alpha = m.log_alpha.exp().detach()
        with torch.no_grad():
            na, nlogp = m.pi(nxt)
            x = torch.cat([nxt, na], -1)
            target = rew + 0.99 * (done < 1).float() * (torch.min(m.t1(x), m.t2(x)) - alpha * nlogp)
        x = torch.cat([obs, act], -1)
        qloss = F.mse_loss(m.q1(x), target) + F.mse_loss(m.q2(x), target)
        qopt.zero_grad()
        qloss.backward()
        qopt.step()
        a, logp = m.pi(obs)
        x = torch.cat([obs, a], -1)
        aloss = (alpha * logp - torch.min(m.q1(x), m.q2(x))).mean()
        aopt.zero_grad()
        aloss.backward()
        aopt.step()
        lloss = -(m.log_alpha * (logp.detach() - 2)).mean()
        lopt.zero_grad()
        lloss.backward()
        lopt.step()
        with torch.no_grad():
            for t, s in ((m.t1, m.q1), (m.t2, m.q2)):
                for tp, sp in zip(t.parameters(), s.parameters(), strict=False):
                    tp.mul_(0.995).add_(sp, alpha=0.005)
        return qloss.detach(), aloss.detach(), lloss.detach()

    return update, lambda: dict(m.state_dict())


@case(CASES, batch((6,)))
def dqn_act(how):
    q = mlp(6, 32, 4)

    @how
    def act(obs, epsilon=0.1):
        with torch.no_grad():
            a = q(obs).argmax(-1)
            random = torch.randint(0, 4, a.shape)
            return torch.where(torch.rand(a.shape) < epsilon, random, a)

    return act, none


@case(
    CASES,
    lambda n: (
        torch.randn(4 + n % 3, 6),
        torch.randint(0, 4, (4 + n % 3,)),
        torch.randn(4 + n % 3),
        torch.randn(4 + n % 3, 6),
        torch.rand(4 + n % 3) > 0.8,
    ),
)
def dqn_update(how):
    q = mlp(6, 32, 4)
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3, eps=1e-4)

    @how
    def update(obs, act, rew, nxt, done):
        with torch.no_grad():
            best = q(nxt).argmax(-1, keepdim=True)
            y = rew + 0.99 * target(nxt).gather(-1, best).squeeze(-1) * (~done)
        loss = F.smooth_l1_loss(q(obs).gather(-1, act[:, None]).squeeze(-1), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    return update, lambda: dict(q.state_dict())


@case(CASES, batch((6,)))
def ema_teacher(how):
    s = mlp(6, 16, 4)
    t = copy.deepcopy(s).requires_grad_(False)
    opt = torch.optim.SGD(s.parameters(), lr=0.1, momentum=0.9)

    @how
    def step(x):
        with torch.no_grad():
            y = t(x + 0.1 * torch.randn_like(x)).softmax(-1)
        loss = F.cross_entropy(s(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            torch._foreach_mul_(list(t.parameters()), 0.99)
            torch._foreach_add_(list(t.parameters()), list(s.parameters()), alpha=0.01)
        return loss.detach()

    return step, lambda: {"s": dict(s.state_dict()), "t": dict(t.state_dict())}


@case(CASES, batch((6,)))
def vmap_ensemble(how):
    models = [mlp(6, 16, 2) for _ in range(4)]
    params, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def one(p, b, x):
        return torch.func.functional_call(base, (p, b), (x,))

    @how
    def f(x):
        with torch.no_grad():
            y = torch.vmap(one, in_dims=(0, 0, None))(params, buffers, x)
            return y.mean(0), y.std(0)

    return f, none


@case(CASES, batch((6,), (2,)))
def per_sample_gradients(how):
    m = mlp(6, 16, 2)
    params = {k: v.detach() for k, v in m.named_parameters()}

    def loss(p, x, y):
        return F.mse_loss(torch.func.functional_call(m, p, (x,)), y)

    f = how(lambda x, y: torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(params, x, y))
    return f, none


@case(CASES, fixed((4, 6), (4, 2)), steps=5)
def maml(how):
    m = mlp(6, 16, 2)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    @how
    def outer(x, y):
        p = dict(m.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(m, p, (x,)), y)
        g = torch.autograd.grad(inner, list(p.values()), create_graph=True)
        q = {k: v - 0.1 * d for (k, v), d in zip(p.items(), g, strict=False)}
        loss = F.mse_loss(torch.func.functional_call(m, q, (x,)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return outer, lambda: dict(m.state_dict())
