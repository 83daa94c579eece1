# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers that are not PyTorch's, compiled for any rate and count."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import hostjit


class Signs(torch.optim.Optimizer):
    """Numbers of the group alone."""

    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[p]
                if len(state) == 0:
                    state["average"] = torch.zeros_like(p)
                average, (first, second) = state["average"], group["betas"]
                p.data.mul_(1.0 - group["lr"] * group["weight_decay"])
                update = average.clone().mul_(first).add(p.grad, alpha=1.0 - first).sign_()
                p.add_(update, alpha=-group["lr"])
                average.mul_(second).add_(p.grad, alpha=1.0 - second)
        return loss


class Beliefs(torch.optim.Optimizer):
    """A count of Python for each parameter."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "eps": 1e-8})

    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                gradient, state = p.grad.data, self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["average"] = torch.zeros_like(p.data)
                    state["variance"] = torch.zeros_like(p.data)
                average, variance = state["average"], state["variance"]
                state["step"] += 1
                average.mul_(first).add_(gradient, alpha=1 - first)
                rest = gradient - average
                variance.mul_(second).addcmul_(rest, rest, value=1 - second)
                root = math.sqrt(1 - second ** state["step"])
                below = (variance.add_(group["eps"]).sqrt() / root).add_(group["eps"])
                size = group["lr"] / (1 - first ** state["step"])
                p.data.addcdiv_(average, below, value=-size)


class Means(torch.optim.Optimizer):
    """Numbers that a step leaves in the group, and lists of tensors."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr, "count": 0, "most": 0.0, "sum": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            count = group["count"]
            group["most"] = max(group["lr"], group["most"])
            weight = (count + 1) ** 0.5 * group["most"] ** 2
            group["sum"] += weight
            share = weight / group["sum"]
            active = [p for p in group["params"] if p.grad is not None]
            for p in active:
                if "z" not in self.state[p]:
                    self.state[p]["z"] = p.clone()
            z = [self.state[p]["z"] for p in active]
            gradients = [p.grad for p in active]
            torch._foreach_lerp_(active, z, weight=share)
            torch._foreach_add_(active, gradients, alpha=-group["lr"] * (1 - share))
            torch._foreach_sub_(z, gradients, alpha=group["lr"])
            group["count"] = count + 1


class Plain(torch.optim.Optimizer):
    """No state."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad, alpha=group["lr"])


class Counting(torch.optim.Optimizer):
    """Counts in itself, and moves a copy of the parameters at every third step."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr})
        self.steps = 0
        self.copies = [[p.detach().clone() for p in g["params"]] for g in self.param_groups]

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-group["lr"])
        self.steps += 1
        if self.steps % 3 == 0:
            for group, copies in zip(self.param_groups, self.copies, strict=True):
                for p, copied in zip(group["params"], copies, strict=True):
                    copied.add_(p.detach() - copied, alpha=0.5)
                    p.data.copy_(copied)


KINDS = (Signs, Beliefs, Means, Plain)


def parameters(count=3):
    generator = torch.Generator().manual_seed(3)
    return [
        nn.Parameter(torch.randn(size, generator=generator))
        for size in [(4, 8), (8,), (3, 3)][:count]
    ]


def give_gradients(params, seed, without=()):
    generator = torch.Generator().manual_seed(seed)
    for index, p in enumerate(params):
        drawn = torch.randn(p.shape, generator=generator)
        p.grad = None if index in without else drawn


class Pair:
    """An optimizer that makes its steps eagerly, and one whose step is compiled."""

    def __init__(self, kind, compile=hostjit.compile, schedule_first=False):
        self.params, self.known = parameters(), parameters()
        self.optimizer, self.eager = kind(self.params), kind(self.known)
        self.schedules = self._schedules() if schedule_first else None
        self.step = compile(self.optimizer.step)
        self.schedules = self.schedules or self._schedules()

    def _schedules(self):
        return [
            torch.optim.lr_scheduler.ExponentialLR(each, 0.9)
            for each in (self.optimizer, self.eager)
        ]

    @classmethod
    def begun(cls, kind, calls):
        """Return one whose first steps are made, for the seeds up to a count."""
        pair = cls(kind)
        for seed in range(calls):
            pair.run(seed)
        return pair

    def run(self, seed, without=()):
        give_gradients(self.params, seed, without)
        give_gradients(self.known, seed, without)
        self.step()
        self.eager.step()
        self.compare()
        for schedule in self.schedules:
            schedule.step()

    def compare(self):
        torch.testing.assert_close(self.params, self.known)
        found, expected = self.optimizer.state_dict(), self.eager.state_dict()
        torch.testing.assert_close(found["state"], expected["state"])
        for group, known in zip(found["param_groups"], expected["param_groups"], strict=True):
            assert {k: (type(v), v) for k, v in group.items()} == {
                k: (type(v), v) for k, v in known.items()
            }


@pytest.mark.parametrize("schedule_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_program_for_any_rate_and_count(kind, schedule_first):
    pair = Pair(kind, schedule_first=schedule_first)
    for seed in range(4):
        pair.run(seed)
    made = len(pair.step.specializations)
    for seed in range(4, 12):
        pair.run(seed)
    assert len(pair.step.specializations) == made <= 3
    assert "aten_call" not in pair.step.host_ir()


def test_many_counts_that_are_the_same_are_one_number():
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(5, generator=generator)) for _ in range(40)]
    known = copy.deepcopy(params)
    optimizer, eager = Beliefs(params), Beliefs(known)
    step = hostjit.compile(optimizer.step)
    for seed in range(8):
        give_gradients(params, seed)
        give_gradients(known, seed)
        step()
        eager.step()
        torch.testing.assert_close(params, known)
    assert len(step.specializations) <= 2
    assert [optimizer.state[p]["step"] for p in params] == [8] * 40


def test_counts_that_differ_from_some_call_on():
    pair = Pair.begun(Beliefs, 5)
    pair.run(5, without=(1,))  # its count stays behind from now on
    for seed in range(6, 14):
        pair.run(seed)
    assert [pair.optimizer.state[p]["step"] for p in pair.params] == [14, 13, 14]
    made = len(pair.step.specializations)
    for seed in range(14, 18):
        pair.run(seed)
    assert len(pair.step.specializations) == made


def test_a_count_that_others_change():
    pair = Pair.begun(Beliefs, 5)
    for optimizer, params in ((pair.optimizer, pair.params), (pair.eager, pair.known)):
        optimizer.state[params[2]]["step"] = 100
    for seed in range(5, 9):
        pair.run(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_is_loaded(kind):
    pair = Pair.begun(kind, 4)
    saved = copy.deepcopy(pair.eager.state_dict())
    for seed in range(4, 7):
        pair.run(seed)
    for optimizer in (pair.optimizer, pair.eager):
        optimizer.load_state_dict(copy.deepcopy(saved))
    for seed in range(7, 11):
        pair.run(seed)


def test_groups_that_are_added():
    pair = Pair.begun(Signs, 4)
    for optimizer, params in ((pair.optimizer, pair.params), (pair.eager, pair.known)):
        more = nn.Parameter(torch.ones(6))
        params.append(more)
        optimizer.add_param_group({"params": [more], "lr": 0.5})
    pair.schedules = []
    for seed in range(4, 8):
        pair.run(seed)


def test_hooks_run_the_step_eagerly():
    pair = Pair.begun(Signs, 4)
    seen = []
    hook = pair.optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    with pytest.warns(UserWarning, match=r"'Signs.step' runs eagerly: the optimizer has hooks"):
        pair.run(4)
    hook.remove()
    pair.run(5)
    assert seen == ["after"]
    hook = register_optimizer_step_pre_hook(lambda *_: seen.append("all"))
    try:
        pair.run(6)
    finally:
        hook.remove()
    assert seen == ["after", "all", "all"]


def test_a_closure_runs_eagerly():
    params = parameters()
    step = hostjit.compile(Signs(params).step)
    calls = []

    def closure():
        calls.append(1)
        give_gradients(params, 0)
        return torch.tensor(3.0)

    assert [step(closure).item() for _ in range(3)] == [3.0] * 3
    assert len(calls) == 3


class Kept(torch.optim.Optimizer):
    """Sizes of steps that the group keeps in a list, one for each of the last ten counts."""

    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr, "kept": [[None, None] for _ in range(10)]})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in filter(lambda p: p.grad is not None, group["params"]):
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                kept = group["kept"][state["step"] % 10]
                if kept[0] != state["step"]:
                    kept[:] = [state["step"], math.sqrt(1 - 0.9 ** state["step"])]
                p.sub_(p.grad, alpha=group["lr"] * kept[1])


def test_steps_that_differ_each_time_are_left_to_eager_mode():
    pair = Pair(Kept)

    def run():
        for seed in range(25):
            pair.run(seed)

    with pytest.warns(UserWarning, match="Kept.step' has 8 spec.*it runs eagerly from now on"):
        run()


class OfAdam(torch.optim.Adam):
    def step(self, closure=None):
        return super().step(closure)


def test_steps_that_are_pytorchs_otherwise_run_eagerly():
    params = parameters()
    step = hostjit.compile(OfAdam(params).step)
    give_gradients(params, 0)
    with pytest.warns(UserWarning, match="there are no steps of OfAdam to compile"):
        step()


def training_steps(kind, compile):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = kind(model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run = compile(step)
    generator = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(10):
        x, y = torch.randn(5, 8, generator=generator), torch.randn(5, 4, generator=generator)
        losses.append(run(x, y).detach().clone())
        schedule.step()
    return losses, [p.detach().clone() for p in model.parameters()]


def by_torch_compile(step):
    torch.compiler.reset()
    return torch.compile(step, backend="hostjit")


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile", [hostjit.compile, by_torch_compile])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_training_steps(kind, compile):
    expected = training_steps(kind, lambda step: step)
    found = training_steps(kind, compile)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_step_that_is_replaced_in_a_training_step():
    params = parameters()
    optimizer = Signs(params)
    seen = []

    def run(x):
        print(end="")
        optimizer.step()
        return x + 1

    compiled = hostjit.compile(run)
    for seed in range(5):
        give_gradients(params, seed)
        compiled(torch.ones(2))
    optimizer.step = lambda: seen.append(1)
    compiled(torch.ones(2))
    assert seen == [1]


@pytest.mark.filterwarnings("ignore:hostjit")
def test_a_step_that_counts_in_the_optimizer():
    pair = Pair(Counting)
    for seed in range(14):
        pair.run(seed)
    assert pair.optimizer.steps == pair.eager.steps == 14
    torch.testing.assert_close(pair.optimizer.copies, pair.eager.copies)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("compile", [hostjit.compile, by_torch_compile])
def test_whole_steps_that_count_in_the_optimizer(compile):
    expected = training_steps(Counting, lambda step: step)
    torch.testing.assert_close(training_steps(Counting, compile), expected)
