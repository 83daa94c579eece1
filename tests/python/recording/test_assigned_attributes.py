# SPDX-License-Identifier: Apache-2.0
"""Attributes that recorded calls assign: replays assign them as well."""

import threading
import warnings

import pytest
import torch
from no_warnings import no_warnings
from torch import nn

import hostjit


def randn(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


class Policy(nn.Module):
    """Keeps what it computes, as users do to look at it, and as losses of their own need it."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.features = None
        self.drawn = None

    def forward(self, x):
        self.features = torch.tanh(self.body(x))
        self.drawn = torch.distributions.Normal(self.head(self.features), 1.0)
        return self.drawn.loc


def training(compile, calls=8):
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad()
        loss = policy(x).square().mean() + policy.features.abs().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = compile(step)
    found = []
    for seed in range(calls):
        loss = run(randn(3, 4, seed=seed))
        kept = policy.features.detach().clone(), policy.drawn.loc.detach().clone()
        found.append((loss, *kept, policy.drawn.variance.clone()))
        assert type(policy.drawn) is torch.distributions.Normal
    return found, run


def test_a_training_step_that_keeps_features():
    expected, _ = training(lambda step: step)
    with no_warnings():
        found, _ = training(hostjit.compile)
        recorded, run = training(hostjit.capture)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(recorded, expected)
    assert run.captured is not None


class Keeper:
    kept = None
    other = None

    def __init__(self, how):
        self.how = how

    def __call__(self, x):
        return self.how(self, x)


def beside_eager(how, seeds=8, between=lambda keeper: None, names=("kept", "other")):
    """Run calls of a function beside eager's, and compare what they leave behind."""
    eager, keeper = Keeper(how), Keeper(how)
    fast = hostjit.capture(keeper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(seeds):
            x = randn(3, seed=seed)
            torch.testing.assert_close(fast(x), eager(x))
            for name in names:
                assert hasattr(keeper, name) == hasattr(eager, name)
                found, expected = getattr(keeper, name, None), getattr(eager, name, None)
                assert type(found) is type(expected)
                if isinstance(found, str):
                    assert found == expected
                elif found is not None:
                    torch.testing.assert_close(found, expected)
            between(keeper)
            between(eager)
    return fast, keeper


def tensor(self, x):
    self.kept = x * 2
    return self.kept + 1


def overwritten(self, x):
    self.kept = x * 2
    y = self.kept + 1
    self.kept = y.exp()
    return y


def containers(self, x):
    self.kept = [x * 2, (x + 1, {"a": x.sum()})]
    self.other = {"b": self.kept[0] + 1}
    return self.other["b"]


def text_and_argument(self, x):
    self.kept, self.other = "seen", x
    return x + 1


def by_setattr(self, x):
    setattr(self, "kept", x * 2)  # noqa: B010
    return self.kept + 1


@pytest.mark.parametrize("how", [tensor, overwritten, containers, text_and_argument])
def test_replays_assign(how):
    fast, _ = beside_eager(how)
    assert fast.captured is not None


def carried(self, x):
    self.kept = x if self.kept is None else self.kept * 0.5 + x
    return self.kept + 1


def looked_at(self, x):
    was_none = self.kept is None
    self.kept = x * 2
    return x + was_none


def asked_for(self, x):
    y = x + hasattr(self, "more")
    self.more = y * 2
    return y


def by_dict(self, x):
    y = x + (vars(self).get("kept") is not None)
    self.kept = x * 2
    return y


def deleted(self, x):
    self.kept = x * 2
    y = self.kept + 1
    del self.kept
    return y


def deleted_at_times(self, x):
    self.kept = x * 2
    y = self.kept + 1
    if (x.sum() > 0).item():
        del self.kept
    return y


def by_values(self, x):
    if (x.sum() > 0).item():
        self.kept = x * 2
    return x + 1


def in_two_places(self, x):
    self.kept = [x * 2]
    self.other = self.kept
    return x + 1


def counted(self, x):
    self.kept = 1 if self.kept is None else self.kept + 1
    return x * self.kept


@pytest.mark.parametrize(
    "how",
    [
        carried,
        looked_at,
        asked_for,
        by_dict,
        by_setattr,
        deleted,
        deleted_at_times,
        by_values,
        in_two_places,
        counted,
    ],
)
def test_calls_do_what_eager_does(how):
    _, keeper = beside_eager(how, names=("kept", "other", "more"))
    if how is in_two_places:
        assert keeper.kept is keeper.other


def test_the_result_is_what_was_kept():
    fast, keeper = beside_eager(lambda self, x: setattr(self, "kept", x * 2) or self.kept)
    result = fast(randn(3, seed=9))
    assert result is keeper.kept


def test_others_may_assign_it_too():
    def between(keeper):
        keeper.kept = "another"

    fast, _ = beside_eager(tensor, between=between)
    assert fast.captured is not None


def test_lists_that_users_change_afterwards():
    def between(keeper):
        if isinstance(keeper.kept, list):
            keeper.kept.clear()

    fast, _ = beside_eager(containers, between=between)
    assert fast.captured is not None


class Guarded(Keeper):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2 if name == "kept" else value)


class Computed(Keeper):
    @property
    def kept(self):
        return self._kept

    @kept.setter
    def kept(self, value):
        self._kept = value * 2


def calls_beside_eager(eager, keeper):
    """Yield what calls are given and both objects, behind each call."""
    fast = hostjit.capture(keeper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(6):
            x = randn(3, seed=seed)
            torch.testing.assert_close(fast(x), eager(x))
            yield x, eager, keeper


@pytest.mark.parametrize("kind", [Guarded, Computed])
def test_classes_that_do_more_than_store(kind):
    for _, eager, keeper in calls_beside_eager(kind(tensor), kind(tensor)):
        torch.testing.assert_close(keeper.kept, eager.kept)


def test_a_method_that_is_replaced():
    class Renamed(Keeper):
        def scale(self, x):
            return x * 2

    def replaces(self, x):
        y = x * 3
        self.scale = y.mul
        return y

    for x, eager, keeper in calls_beside_eager(Renamed(replaces), Renamed(replaces)):
        torch.testing.assert_close(keeper.scale(x), eager.scale(x))


def test_classes_are_left_as_they_were():
    before = dict(vars(Keeper))
    beside_eager(tensor)
    assert dict(vars(Keeper)) == before


def test_gradients_flow_through_what_is_kept():
    def run(compile):
        weight = torch.full((3,), 0.5, requires_grad=True)
        keeper = Keeper(None)

        def call(x):
            keeper.kept = (x * weight).tanh()
            return keeper.kept * 2

        fast = compile(call)
        for seed in range(5):
            weight.grad = None
            result = fast(randn(3, seed=seed))
            (result.sum() + keeper.kept.square().sum()).backward()
        return weight.grad

    torch.testing.assert_close(run(hostjit.capture), run(lambda call: call))


def test_an_operator_that_raises_leaves_what_eager_leaves():
    def factor(self, x):
        self.kept = x * 2
        return torch.linalg.cholesky(torch.diag(x))

    keeper = Keeper(factor)
    fast = hostjit.capture(keeper)
    for seed in range(5):
        fast(randn(3, seed=seed).abs() + 1)
    assert fast.captured is not None
    bad = torch.tensor([1.0, -1.0, 1.0])
    with pytest.raises(torch.linalg.LinAlgError):
        fast(bad)
    torch.testing.assert_close(keeper.kept, bad * 2)


def test_it_is_not_saved(tmp_path):
    fast, _ = beside_eager(tensor)
    with pytest.raises(hostjit.Error, match="can't be saved"):
        hostjit.save(fast, tmp_path / "kept.hostjit")


def test_recordings_of_several_threads():
    keepers = [Keeper(tensor) for _ in range(4)]
    fast = [hostjit.capture(keeper) for keeper in keepers]
    before = dict(vars(Keeper))
    barrier = threading.Barrier(4)
    wrong = []

    def run(index):
        barrier.wait()
        for seed in range(12):
            x = randn(3, seed=seed)
            fast[index](x)
            if not torch.equal(keepers[index].kept, x * 2):
                wrong.append((index, seed))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert dict(vars(Keeper)) == before
