# SPDX-License-Identifier: Apache-2.0
"""Arrays that recorded code makes of tensors, and hands out: each replay makes another."""

import warnings

import numpy as np
import pytest
import torch

import hostjit


def randn(seed):
    return torch.randn(3, generator=torch.Generator().manual_seed(seed))


def returned(x):
    return x.mean().numpy()


def in_a_list(x):
    found = []
    found.append(x.mean().cpu().numpy())
    y = x * 2
    found.append(y.sum().numpy())
    return y, found


def beside_the_tensor(x):
    mean = x.mean()
    array = mean.numpy()
    return mean, array


def of_gradients(x):
    x = x.detach().requires_grad_()
    loss = x.square().sum()
    with torch.no_grad():
        array = (loss * 2).numpy()
    loss.backward()
    return x.grad, array


RECORDED = [returned, in_a_list, of_gradients]


def decided(x):
    mean = x.mean().numpy()
    return x + 1 if mean > 0 else x - 1


def computed(x):
    return x * float(x.mean().numpy() * 2 + 1)


def handed_on(x):
    return np.exp(x.mean().numpy())


def written_behind(x):
    mean = x.mean()
    array = mean.numpy()
    mean.add_(1)
    return array


def changed(x):
    mean = x.mean()
    array = mean.numpy()
    array += 1
    return array, mean


def of_an_argument(x):
    return x[0].numpy()


def indexing(x):
    place = x.argmax().numpy()
    return x[place] + 1, (x * 2)[None, place], torch.arange(3)[place]


def put_at(x):
    x = x.clone()
    x[x.argmax().numpy()] = 0
    return x


def shown(x):
    return x + 1, f"{x.mean().numpy():.3f}"


def of_many(x):
    return (x * 2).numpy()


OTHERS = [
    *(decided, computed, handed_on, beside_the_tensor, written_behind, changed, of_an_argument),
    *(indexing, put_at, shown, of_many),
]


def same(found, expected):
    if isinstance(expected, (tuple, list)):
        assert type(found) is type(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    assert type(found) is type(expected)
    if isinstance(expected, str):
        assert found == expected
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def beside_eager(function):
    fast = hostjit.capture(function)
    kept = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(6):
            found = fast(randn(seed))
            same(found, function(randn(seed)))
            kept.append(found)
    for seed, found in enumerate(kept):  # no replay writes to what another gave
        same(found, function(randn(seed)))
    return fast


@pytest.mark.parametrize("function", RECORDED)
def test_replays_make_arrays(function):
    assert beside_eager(function).captured is not None


@pytest.mark.parametrize("function", OTHERS)
def test_others_do_what_eager_does(function):
    beside_eager(function)


@pytest.mark.filterwarnings("ignore:hostjit")
def test_items_at_arrays_in_a_loop_of_steps():
    def training(compile):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(x):
            found = []
            for _ in range(3):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                place = x.mean(1).argmax().numpy()
                found.append(x[place].sum().item())
                found.append(x[place, 0].item())
                x[place] = 0.5
            return found

        run = compile(step)
        generator = torch.Generator().manual_seed(3)
        return [run(torch.randn(6, 4, generator=generator)) for _ in range(10)]

    assert training(hostjit.compile) == pytest.approx(np.array(training(lambda step: step)))
