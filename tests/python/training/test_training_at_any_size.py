# SPDX-License-Identifier: Apache-2.0
"""Training with open dims: one compilation, and the gradients of eager for all sizes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import hostjit
from hostjit.compiling.specializer import Specializer

SIZES = [(4, 6), (5, 7), (9, 3), (4, 6), (3, 40)]


def leaf(*sizes: int) -> Tensor:
    return torch.randn(*sizes, requires_grad=True)


def gradients(
    function: Callable[..., Any], args: Sequence[Tensor], parameters: Iterable[Tensor]
) -> list[Tensor | None]:
    """Results, then the gradients of the arguments and parameters, for arbitrary tangents."""
    args = [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args]
    wanted = [*args, *parameters]
    for tensor in wanted:
        tensor.grad = None
    torch.manual_seed(1)
    results = function(*args)
    results = results if isinstance(results, tuple) else (results,)
    with_gradient = [result for result in results if result.requires_grad]
    torch.manual_seed(2)
    torch.autograd.backward(with_gradient, [torch.randn_like(r) for r in with_gradient])
    return [*(result.detach() for result in results), *(tensor.grad for tensor in wanted)]


def check(
    function: Callable[..., Any],
    calls: Iterable[Sequence[Tensor]],
    runtime: str,
    programs: int = 1,
    **options: Any,
) -> hostjit.CompiledFunction:
    """Compare calls with eager's; returns the compiled function, which has that many programs."""
    compiled = hostjit.compile(function, runtime=runtime, **({"dynamic": True} | options))
    parameters = [*function.parameters()] if isinstance(function, nn.Module) else []
    state = copy.deepcopy(function.state_dict()) if isinstance(function, nn.Module) else {}
    for call in calls:
        expected = gradients(function, call, parameters)
        if isinstance(function, nn.Module):
            state, after = copy.deepcopy(function.state_dict()), state
            function.load_state_dict(after)
        found = gradients(compiled, call, parameters)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        if isinstance(function, nn.Module):
            torch.testing.assert_close(function.state_dict(), state)
    assert len(compiled.specializations) == programs
    return compiled


def test_pointwise_operators(runtime: str) -> None:
    compiled = check(lambda x: x.sin() * x + 1, [(leaf(*size),) for size in SIZES], runtime)
    (specialization,) = compiled.specializations
    assert specialization.backward.program.num_rows == 4


def test_reductions(runtime: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), x.sum(0), x.mean(1, keepdim=True), x.var(1), x.amax(0), x.logsumexp(1)

    check(function, [(leaf(*size),) for size in SIZES], runtime)


def test_a_size_that_only_the_forward_has_a_tensor_of(runtime: str) -> None:
    compiled = check(lambda x: x.sum() * x.shape[0], [(leaf(*size),) for size in SIZES], runtime)
    (specialization,) = compiled.specializations
    assert "tensor<u8, [0, s" in specialization.backward.program.host_ir()


def test_operands_that_are_broadcast(runtime: str) -> None:
    def function(x: Tensor, row: Tensor, number: Tensor) -> Tensor:
        return (x * row + row.exp()) * number

    check(function, [(leaf(*size), leaf(size[1]), leaf(1, 1)) for size in SIZES], runtime)


def test_products(runtime: str) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x @ y, torch.einsum("ij,jk->ki", x, y).relu() @ x

    check(function, [(leaf(n, m), leaf(m, n + m)) for n, m in SIZES if n != m], runtime)


def test_views_and_parts(runtime: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        rows = x.shape[0]
        heads = x.view(rows, -1, 2, 4).transpose(1, 2).reshape(rows * 2, -1)
        return heads.tanh(), x[1:, :-1] * 2, torch.cat([x, x.flip(0)], 1).t() * 3

    # The trace of torch 2.11 loses a size that -1 stands for.
    programs = len(set(SIZES)) if torch.__version__ < (2, 12) else 1
    check(function, [(leaf(n, 8 * m),) for n, m in SIZES], runtime, programs)


def test_softmax_and_cross_entropy(runtime: str) -> None:
    def function(x: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        smooth = F.cross_entropy(x, target, label_smoothing=0.1)
        return x.softmax(-1), x.softmax(0), F.cross_entropy(x, target), smooth

    check(function, [(leaf(n, m), torch.randint(m, (n,))) for n, m in SIZES], runtime)


def test_losses_of_sequences(runtime: str) -> None:
    def function(x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(x.flatten(0, 1), target.flatten(), ignore_index=3)

    check(function, [(leaf(n, m, 11), torch.randint(11, (n, m))) for n, m in SIZES], runtime)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.RMSNorm(8)),
        lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.ReLU()),
    ],
    ids=["layer_norm", "dropout", "batch_norm"],
)
def test_modules_of_any_batch(make: Callable[[], nn.Module], runtime: str) -> None:
    check(make(), [(torch.randn(n, 8),) for n in (4, 7, 2, 33)], runtime)


@pytest.mark.parametrize("padding", [None, 0])
def test_embeddings(padding: int | None, runtime: str) -> None:
    module = nn.Sequential(nn.Embedding(10, 8, padding_idx=padding), nn.Linear(8, 4))
    check(module, [(torch.randint(0, 10, size),) for size in SIZES], runtime)


def test_convolutions_of_any_batch(runtime: str) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    shapes = {"input": {0: "batch"}}
    calls = [(leaf(n, 3, 8, 8),) for n in (2, 5, 3)]
    check(module, calls, runtime, dynamic=False, dynamic_shapes=shapes)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, runtime: str) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    calls = [[leaf(n, 4, m, 8) for _ in range(3)] for n, m in SIZES]
    check(function, calls, runtime)


def test_dropout_of_attention(runtime: str) -> None:
    """What is drawn has the size of the sequence in two dims, of which strides are made."""

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return F.dropout(weights, 0.25) @ v

    calls = [[leaf(n, 4, m, 8) for _ in range(3)] for n, m in SIZES]
    check(function, calls, runtime)


class Block(nn.Module):
    """A transformer block as GPT-2 has it, at another width."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = (nn.Linear(width, n * width) for n in (3, 1))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(heads.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


@pytest.mark.parametrize(("dynamic", "programs"), [(True, 1), (None, 2)])
def test_a_transformer_block_at_200_sizes(dynamic: bool | None, programs: int) -> None:
    sizes = [(2 + n % 10, 2 + n // 10) for n in range(200)]
    if dynamic is None:
        sizes = [(6, 11), *sizes[::9]]
    calls = [(torch.randn(*size, 32),) for size in sizes]
    check(Block(32, 4), calls, "jit", programs, dynamic=dynamic)


def test_the_last_batch_of_an_epoch_may_be_smaller(runtime: str) -> None:
    torch.manual_seed(0)
    data, labels = torch.randn(50, 8), torch.randint(4, (50,))

    def train(wrap: Callable[[Any], Any]) -> tuple[list[Tensor], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = wrap(lambda x, target: F.cross_entropy(model(x), target))
        losses = []
        for _ in range(4):
            for x, target in zip(data.split(16), labels.split(16), strict=True):
                losses.append(loss(x, target))
                losses[-1].backward()
                optimizer.step()
                optimizer.zero_grad()
        return [loss.detach() for loss in losses], loss

    expected, _ = train(lambda function: function)
    found, loss = train(lambda function: hostjit.compile(function, runtime=runtime))
    torch.testing.assert_close(found, expected)
    assert len(loss.specializations) == 2


def test_sizes_zero_and_one_have_programs_of_their_own(runtime: str) -> None:
    calls = [(leaf(n, 4),) for n in (5, 1, 0, 7, 1, 0)]
    check(lambda x: x.relu().sum(0) * x.shape[0], calls, runtime, programs=3)


def test_a_decision_by_a_size_makes_two_programs(runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 10 else x.exp()

    check(function, [(leaf(n, 4),) for n in (5, 20, 6, 10, 11, 2)], runtime, programs=2)


def test_an_argument_that_only_lends_its_sizes(runtime: str) -> None:
    def function(x: Tensor, like: Tensor) -> Tensor:
        return x.sum() * torch.ones(like.shape[0], 2)

    check(function, [(leaf(3), torch.randn(n, m)) for n, m in SIZES], runtime)


def test_inputs_that_are_no_leaves_and_not_contiguous(runtime: str) -> None:
    compiled = hostjit.compile(lambda x: (x * 2).exp(), dynamic=True, runtime=runtime)
    for n, m in SIZES:
        x = leaf(n, m)
        expected = torch.autograd.grad((x.sin().t() * 2).exp().sum(), x)
        found = torch.autograd.grad(compiled(x.sin().t()).sum(), x)
        torch.testing.assert_close(found, expected)
    assert len(compiled.specializations) == 1


def test_several_calls_before_the_backward_passes(runtime: str) -> None:
    compiled = hostjit.compile(lambda x: x.sin().cumsum(0), dynamic=True, runtime=runtime)
    inputs = [leaf(*size) for size in SIZES]
    losses = [compiled(x).sum() for x in inputs]
    for x, loss in reversed([*zip(inputs, losses, strict=True)]):
        (expected,) = torch.autograd.grad(x.sin().cumsum(0).sum(), x)
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], expected)


def test_results_without_an_incoming_gradient(runtime: str) -> None:
    compiled = hostjit.compile(lambda x: (x.sin(), x.exp().t()), dynamic=True, runtime=runtime)
    for n, m in SIZES:
        x = leaf(n, m)
        for index, derivative in enumerate((x.cos(), x.exp())):
            (found,) = torch.autograd.grad(compiled(x)[index].sum(), x)
            torch.testing.assert_close(found, derivative)


@pytest.mark.parametrize("order", [2, 3])
def test_higher_derivatives(order: int, runtime: str) -> None:
    def function(x: Tensor, like: Tensor) -> Tensor:
        return (x.sin() * x.exp()).sum(0) * like.shape[0]

    def derivative(function: Callable[..., Tensor], x: Tensor, like: Tensor) -> Tensor:
        found = function(x, like).sum()
        for _ in range(order):
            (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
        return found

    compiled = hostjit.compile(function, dynamic=True, runtime=runtime)
    for n, m in SIZES:
        call = leaf(n, m), torch.randn(m, 2)
        torch.testing.assert_close(derivative(compiled, *call), derivative(function, *call))
    assert len(compiled.specializations) == 1


def test_hooks_on_saved_tensors_may_not_change_sizes(runtime: str) -> None:
    compiled = hostjit.compile(lambda x: x.sin(), dynamic=True, runtime=runtime)
    for n, m in SIZES:
        x = leaf(n, m)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t + 0):
            y = compiled(x)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], x.cos())
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t[1:], lambda t: t):
            y = compiled(x)
        with pytest.raises(RuntimeError, match="a tensor saved for backward"):
            y.sum().backward()


def test_backward_passes_of_threads(runtime: str) -> None:
    compiled = hostjit.compile(Block(16, 2), dynamic=True, runtime=runtime)
    inputs = [leaf(2 + n % 5, 3 + n % 7, 16) for n in range(35)]
    expected = [torch.autograd.grad(compiled.__wrapped__(x).sum(), x)[0] for x in inputs]
    compiled(inputs[0])
    errors: list[Exception] = []

    def work(first: int) -> None:
        try:
            for n in (*range(first, 35), *range(first)):
                (found,) = torch.autograd.grad(compiled(inputs[n]).sum(), inputs[n])
                torch.testing.assert_close(found, expected[n], rtol=1e-4, atol=1e-5)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(9 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(compiled.specializations) == 1


def test_more_sizes_than_rows_are_kept() -> None:
    compiled = hostjit.compile(lambda x: x.sin(), dynamic=True)
    waiting = [(x := leaf(n, 2), compiled(x).sum()) for n in range(2, 1100)]
    for x, loss in waiting:
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], x.cos())
    (specialization,) = compiled.specializations
    assert specialization.backward.program.num_rows == 1024


def test_autocast(runtime: str) -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            return (x @ weight).float().softmax(-1)

    compiled = hostjit.compile(function, dynamic=True, runtime=runtime)
    for n, m in SIZES:
        call = leaf(n, 8), leaf(8, m)
        found, expected = (
            torch.autograd.grad(f(*call)[:, 0].sum(), call) for f in (compiled, function)
        )
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    assert len(compiled.specializations) == 1


@pytest.mark.parametrize("backend", [False, True], ids=["compile", "backend"])
def test_the_next_token_of_texts_of_any_length(backend: bool) -> None:
    """The backward pass is told of a length, and computes with one more: `x[:, :-1]`."""
    words, layer = nn.Embedding(20, 8, padding_idx=0), nn.Linear(8, 20)

    def loss(ids: Tensor) -> Tensor:
        logits = layer(words(ids[:, :-1]).tanh()).flatten(0, 1)
        return F.cross_entropy(logits, ids[:, 1:].reshape(-1), ignore_index=0)

    torch.compiler.reset()
    fast = torch.compile(loss, backend="hostjit") if backend else hostjit.compile(loss)
    for index, (rows, columns) in enumerate([(3, 5), (4, 7), (3, 9), (2, 4), (4, 11), (5, 6)]):
        if index == 2:
            programs = Specializer.num_programs
        ids = torch.randint(0, 20, (rows, columns))
        outcomes = []
        for function in (fast, loss):
            value = function(ids)
            outcomes.append([value, *torch.autograd.grad(value, [words.weight, layer.weight])])
        torch.testing.assert_close(*outcomes)
    assert Specializer.num_programs == programs
