# SPDX-License-Identifier: Apache-2.0
"""`torch.distributions` in compiled functions: samples, log-probabilities, entropies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution
from torch.nn.functional import softplus
from torch.testing import assert_close

import hostjit
from hostjit.capturing.dynamo import startup

MAKERS: dict[str, Callable[[Tensor, Tensor], Distribution]] = {
    "Categorical": lambda x, scale: distributions.Categorical(logits=x),
    "Categorical of probabilities": lambda x, scale: distributions.Categorical(x.softmax(-1)),
    "Bernoulli": lambda x, scale: distributions.Bernoulli(logits=x),
    "Normal": distributions.Normal,
    "Independent": lambda x, scale: distributions.Independent(distributions.Normal(x, scale), 1),
    "MultivariateNormal": lambda x, scale: distributions.MultivariateNormal(
        x, torch.diag_embed(scale)
    ),
    "Beta": lambda x, scale: distributions.Beta(softplus(x) + 0.1, scale),
    "Gamma": lambda x, scale: distributions.Gamma(scale, softplus(x) + 0.1),
    "Dirichlet": lambda x, scale: distributions.Dirichlet(softplus(x) + 0.1),
    "Uniform": lambda x, scale: distributions.Uniform(x, x + scale),
    "Exponential": lambda x, scale: distributions.Exponential(softplus(x) + 0.1),
    "Laplace": distributions.Laplace,
    "OneHotCategorical": lambda x, scale: distributions.OneHotCategorical(logits=x),
    "StudentT": lambda x, scale: distributions.StudentT(3.0, x, scale),
    "LogNormal": distributions.LogNormal,
}


def act(distribution: Distribution) -> tuple[Tensor, ...]:
    """What a policy asks of its distribution."""
    drawn = distribution.rsample() if distribution.has_rsample else distribution.sample()
    return drawn, distribution.log_prob(drawn), distribution.entropy(), distribution.mean


def squashed(x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """The policy of soft actor-critic."""
    normal = distributions.Normal(x, scale)
    policy = distributions.TransformedDistribution(normal, distributions.TanhTransform())
    action = policy.rsample()
    return action, policy.log_prob(action)


@pytest.mark.parametrize("name", [*MAKERS, "squashed"])
def test_as_eager(name: str) -> None:
    layer = torch.nn.Linear(6, 6)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        location, scale = layer(x), softplus(x) + 0.1
        return (
            squashed(location, scale) if name == "squashed" else act(MAKERS[name](location, scale))
        )

    fast = hostjit.compile(function, fallback=False)
    generator = torch.Generator().manual_seed(0)
    for seed, runtime in enumerate(["jit", "jit", "evaluator"]):
        x = torch.randn(4, 6, generator=generator)
        torch.manual_seed(seed)
        expected = function(x)
        torch.manual_seed(seed)
        with hostjit.runtime(runtime):
            found = fast(x)
            assert_close(found, expected, equal_nan=True)
            assert [r.requires_grad for r in found] == [r.requires_grad for r in expected]
            of_eager = torch.autograd.grad(expected[1].sum(), layer.weight)
            # Where tanh saturates, its inverse in the log-probability magnifies roundings.
            tolerance = {"rtol": 1e-3, "atol": 1e-4} if name == "squashed" else {}
            gradients = torch.autograd.grad(found[1].sum(), layer.weight)
            assert_close(gradients, of_eager, **tolerance)


def test_first_of_a_process() -> None:
    """Nothing was captured before: the checks of values are still on."""
    Distribution.set_default_validate_args(True)
    startup.prepare_distributions.cache_clear()
    fast = hostjit.compile(lambda x: distributions.Categorical(logits=x).sample(), fallback=False)
    assert fast(torch.randn(4, 6)).shape == (4,)
    assert not Distribution._validate_args


def test_checks_that_are_wanted_run() -> None:
    fast = hostjit.compile(lambda x: distributions.Normal(x, x, validate_args=True).mean)
    with pytest.warns(UserWarning, match="hostjit"):
        assert fast(torch.ones(2)).shape == (2,)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        fast(-torch.ones(2))
