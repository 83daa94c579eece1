# SPDX-License-Identifier: Apache-2.0
"""Programs for any size of a dim: right for all of them, and compiled once."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import many_calls
import pytest
import torch
from torch.nn import functional

import hostjit

check = functools.partial(many_calls.check, programs=1, dynamic=True)


SIZES = [(2, 3), (5, 7), (16, 16), (3, 40), (64, 2)]


def test_a_perceptron_with_any_batch(runtime: str) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8), torch.nn.Tanh()
    )
    compiled = check(model, [(torch.randn(n, 16),) for n in (4, 5, 2, 33)], runtime=runtime)
    assert "tensor<f32, [s" in compiled.host_ir()


def test_softmax_over_any_length(runtime: str) -> None:
    calls = [(torch.randn(n, m),) for n, m in SIZES]
    check(lambda x: x.softmax(-1), calls, runtime=runtime)
    check(lambda x: x.softmax(0), calls, runtime=runtime)


def test_sums_means_and_deviations() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.mean(1), x.var(1), x.amax(), x.argmax(1), x.mean(), x.std(0)

    check(function, [(torch.randn(n, m),) for n, m in SIZES])


def test_layer_norm_over_known_and_open_dims() -> None:
    weight, bias = torch.randn(24), torch.randn(24)

    def function(x: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (24,), weight, bias) + x.mean((0, 1))

    check(function, [(torch.randn(n, m, 24),) for n, m in SIZES])


def test_putting_together_and_taking_apart(runtime: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.cat([x, y], 1)
        return both, both[:, 1:] * 2, x.t().contiguous(), torch.stack([y, y]), both.flip(1)

    calls = [(torch.randn(n, m), torch.randn(n, m + 1)) for n, m in SIZES]
    check(function, calls, runtime=runtime)


def test_views_regroup_open_dims() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, length, width = x.shape
        heads = x.view(batch, length, 4, width // 4).transpose(1, 2)
        return (
            heads.relu(),
            heads.reshape(batch * 4, length, -1),
            x.flatten(),
            x.unsqueeze(1) + x[0],
        )

    check(function, [(torch.randn(n, m, 8),) for n, m in SIZES if n != m])


def test_masks_and_positions(runtime: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        length = x.shape[1]
        places = torch.arange(length)
        mask = places[:, None] >= places
        scores = (x.unsqueeze(1) * x.unsqueeze(2)).masked_fill(~mask, float("-inf"))
        return scores.softmax(-1), torch.zeros(length, 3), torch.full_like(x, 2.0) * length

    check(function, [(torch.randn(n, m),) for n, m in SIZES if n != m], runtime=runtime)


def test_sizes_are_numbers_of_kernels() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x / x.shape[0] + x.shape[1] * x.numel()

    check(function, [(torch.randn(n, m),) for n, m in SIZES])


def test_operands_are_broadcast() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * y.expand(x.shape[0], -1)

    check(function, [(torch.randn(n, m), torch.randn(1, m)) for n, m in SIZES])


def test_two_dims_that_must_agree() -> None:
    calls = [(torch.randn(n, m), torch.randn(n, m)) for n, m in SIZES]
    compiled = check(lambda x, y: x * y + x, calls)
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.randn(3, 4), torch.randn(3, 5))


def test_convolutions_of_any_batch() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU())
    images = [torch.randn(n, 3, 8, 8) for n in (2, 3, 7)]
    check(model, [(image,) for image in images], dynamic=None, dynamic_shapes=[{0: "batch"}])
    large = torch.nn.Conv2d(16, 32, 3)
    images = [torch.randn(n, 16, 32, 32) for n in (2, 3, 7)]
    check(large, [(image,) for image in images], dynamic=None, dynamic_shapes=[{0: "batch"}])


def test_embeddings_of_any_length(runtime: str) -> None:
    model = torch.nn.Embedding(10, 16)
    calls = [(torch.randint(0, 10, (n, m)),) for n, m in SIZES]
    compiled = check(lambda x: torch.relu(model(x)), calls, runtime=runtime)
    with pytest.raises(IndexError, match="index out of range in self"):
        compiled(torch.full((3, 4), 10))


def test_products_of_open_sizes(runtime: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ y, (x @ y).relu() @ y.t(), torch.einsum("ij,jk->ki", x, y)

    calls = [(torch.randn(n, m), torch.randn(m, n + m)) for n, m in SIZES]
    check(function, calls, runtime=runtime)


def test_attention() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    calls = [tuple(torch.randn(3, n, 4, m, 8)) for n, m in SIZES]
    check(function, calls)


def test_operators_without_a_rule(runtime: str) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.cumsum(1), torch.sort(x, 1).values, x.tril(), x.new_zeros(x.shape).logcumsumexp(0)

    check(function, [(torch.randn(n, m),) for n, m in SIZES], runtime=runtime)


def test_inputs_and_results_in_place() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x[1:] += 2
        return x.add_(1)

    compiled = hostjit.compile(function, dynamic=True)
    for n, m in SIZES:
        x = torch.randn(n + 1, m)
        y = x.clone()
        torch.testing.assert_close(compiled(x), function(y))
        torch.testing.assert_close(x, y)
    assert len(compiled.specializations) == 1


def test_an_empty_slice() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[2:] * 2

    compiled = hostjit.compile(function, dynamic=True)
    for n in (5, 2, 3, 4, 2, 9):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), function(x))


def test_sizes_zero_and_one_have_programs_of_their_own() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.relu().sum(0) + x.shape[0]

    check(function, [(torch.randn(n, 4),) for n in (5, 1, 0, 7, 1, 0)], programs=3)


def test_a_decision_by_a_size_makes_two_programs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 10 else x - 1

    check(function, [(torch.randn(n, 4),) for n in (5, 20, 6, 10, 11, 2)], programs=2)


def test_strides_are_part_of_the_signature() -> None:
    calls = [(torch.randn(m, n).t(),) for n, m in SIZES]
    check(lambda x: x.relu() + 1, calls)
    calls = [(torch.randn(n, 2 * m)[:, ::2],) for n, m in SIZES]
    compiled = hostjit.compile(lambda x: x.relu() + 1, dynamic=True)
    for (x,) in calls:
        torch.testing.assert_close(compiled(x), x.relu() + 1)
        y = x.contiguous()
        torch.testing.assert_close(compiled(y), y.relu() + 1)


def test_an_argument_that_only_lends_its_sizes() -> None:
    def function(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return x.sum() + torch.ones(like.shape[0], 2)

    check(function, [(torch.randn(3), torch.randn(n, m)) for n, m in SIZES])


def test_an_argument_that_is_not_used() -> None:
    calls = [(torch.randn(n, 3), torch.randn(n, m)) for n, m in SIZES]
    check(lambda x, unused: x.relu(), calls)


class Block(torch.nn.Module):
    """A transformer block as GPT-2 has it, at another width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.projection = (torch.nn.Linear(width, n * width) for n in (3, 1))
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(heads.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


@pytest.mark.parametrize(("dynamic", "programs"), [(True, 1), (None, 2)])
def test_a_transformer_block_at_many_sizes(dynamic: bool | None, programs: int) -> None:
    shapes = [(2 + 5 * n % 7, 2 + 11 * n % 29) for n in range(40)]
    calls = [(torch.randn(*shape, 32),) for shape in shapes]
    check(Block(32, 4), calls, programs=programs, dynamic=dynamic)


def test_threads_with_sizes_of_their_own() -> None:
    model = Block(32, 4)
    compiled = hostjit.compile(model, dynamic=True)
    inputs = [torch.randn(2 + n % 5, 3 + n % 7, 32) for n in range(64)]
    expected = [model(x) for x in inputs]

    def run(first: int) -> None:
        with torch.no_grad():
            for n in (*range(first, 64), *range(first)):
                torch.testing.assert_close(compiled(inputs[n]), expected[n])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, 16 * first) for first in range(4)]:
            done.result()
    # Threads that meet before there is a program may each make one.
    assert len(compiled.specializations) <= 4


def test_inputs_that_are_negated_or_conjugated_lazily(runtime: str) -> None:
    def call(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        z = torch.randn(n, 3, dtype=torch.complex64).conj()
        return z, z.imag

    assert call(1)[0].is_conj()
    assert call(1)[1].is_neg()
    calls = [call(n) for n in (3, 4, 7)]
    check(lambda z, y: (z * 2, y + 1, y.clone(), z.resolve_conj()), calls, runtime=runtime)
    plain = [(z.resolve_conj(), y.resolve_neg()) for z, y in calls]
    many_calls.check(lambda _, y: y + 1, [*calls, *plain], 2, runtime=runtime, dynamic=True)
