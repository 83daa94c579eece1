# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="hostjit") where gradients are needed: forward, backward, their writes."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_eager import check
from no_warnings import no_warnings
from torch import Tensor, nn
from torch._dynamo import convert_frame
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import hostjit
from hostjit.compiling.specializer import Specializer


def leaf(*sizes: int) -> Tensor:
    return torch.randn(*sizes, requires_grad=True)


def views(x: Tensor) -> tuple[Tensor, ...]:
    return x.t(), x, x * 2, x[1:], x.detach()


def partly_without_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        y = x * 2
    return y, x * y


def drops_out(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5) * x


def checkpoints(x: Tensor) -> Tensor:
    result: Tensor = checkpoint(lambda y: y.sin().tanh(), x, use_reentrant=False)
    return result


def checkpoints_random_numbers(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        return F.dropout(y.sin(), 0.5) * torch.rand_like(y)

    def outer(y: Tensor) -> Tensor:
        return checkpoint(inner, y * 2, use_reentrant=False) + F.dropout(y, 0.2)

    result: Tensor = checkpoint(outer, x, use_reentrant=False) + torch.randn(())
    return result


def checkpoints_with_a_lazy_result(x: Tensor) -> tuple[Tensor, Tensor]:
    return checkpoints_random_numbers(x), x.detach().to(torch.complex64).conj()


def eigenvalues(x: Tensor) -> Tensor:
    return torch.linalg.eigvals(x).abs()


def hooks(x: Tensor) -> Tensor:
    y = x * 3
    y.register_hook(lambda gradient: gradient * 2)
    return y.sin()


@pytest.mark.parametrize(
    "function",
    [views, partly_without_gradients, drops_out, checkpoints, checkpoints_random_numbers, hooks],
)
def test_function_of_one_tensor(function: Callable[..., Any], runtime: str) -> None:
    check(function, (leaf(3, 4),), runtime=runtime)


def test_a_checkpoint_draws_its_numbers_once_where_eager_runs(runtime: str) -> None:
    check(checkpoints_with_a_lazy_result, (leaf(4, 3),), runtime=runtime, may_fall_back=True)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change(dynamic: bool | None, runtime: str) -> None:
    def function(x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
        return torch.tanh(x @ weight).sum(0), x.shape[0]

    calls = [(leaf(rows, 4), leaf(4, 5)) for rows in (3, 6, 7, 6)]
    check(function, *calls, runtime=runtime, dynamic=dynamic)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.exp() * x).sum(),
        lambda x: x.var(1),
        lambda x: x.flatten()[1:].cumsum(0),
        lambda x: F.log_softmax(x @ x.t(), 1),
        lambda x: (x * x.shape[0], x.numel()),
    ],
    ids=["sum", "var", "flatten", "log_softmax", "numbers"],
)
def test_sizes_that_change_compile_nothing(function: Callable[..., Any], runtime: str) -> None:
    calls = [(leaf(rows, columns),) for rows, columns in [(3, 5), (6, 4), (7, 9), (6, 4), (4, 4)]]
    with hostjit.knobs(enable="recompile_limit(1)"):  # of each half, and no eager runs
        check(function, *calls, runtime=runtime, dynamic=True)


def test_a_transformer_layer_at_any_size(runtime: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    options = {"runtime": runtime, "fallback": False}
    compiled = torch.compile(layer, backend="hostjit", dynamic=True, options=options)
    with hostjit.knobs(enable="recompile_limit(1)"), no_warnings():
        for batch, length in [(2, 3), (3, 4), (5, 7), (2, 9)]:
            x = leaf(batch, length, 8)
            wanted = [x, *layer.parameters()]
            expected = torch.autograd.grad(layer(x).pow(2).sum(), wanted)
            found = torch.autograd.grad(compiled(x).pow(2).sum(), wanted)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_batch_that_is_smaller_compiles_once_more(runtime: str) -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    options = {"runtime": runtime, "fallback": False}
    compiled = torch.compile(module, backend="hostjit", options=options)
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):
        for rows in (16, 16, 2, 16, 16, 2, 5):
            x, target = torch.randn(rows, 8), torch.randint(4, (rows,))
            losses = [F.cross_entropy(run(x), target) for run in (compiled, module)]
            wanted = [*module.parameters()]
            found, expected = (torch.autograd.grad(loss, wanted) for loss in losses)
            torch.testing.assert_close(found, expected)


def test_writes_of_inputs_and_intermediates(runtime: str) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y.add_(x.detach())
        z = x * y
        z.mul_(2)
        return z

    check(function, (leaf(3, 4), torch.randn(3, 4)), runtime=runtime)


def test_numbers_that_change(runtime: str) -> None:
    calls = [(leaf(3), number) for number in (0.5, 0.6, 1e-8)]
    check(lambda x, number: x * number + number, *calls, runtime=runtime)


def test_numbers_that_change_with_an_alpha(runtime: str) -> None:
    def function(x: Tensor, number: float) -> Tensor:
        return torch.add(x, number, alpha=3) * torch.sub(x.sin(), number, alpha=number)

    calls = [(leaf(3), number) for number in (0.5, 0.6, 1e-8)]
    check(function, *calls, runtime=runtime)


@pytest.mark.parametrize(
    "shift", [lambda n: n, lambda n: -n, lambda n: 2 * n * n - 1, lambda n: n * (n - 4)]
)
def test_ints_that_backward_passes_take_with_another_sign(
    shift: Callable[[int], int], runtime: str
) -> None:
    """One program for any: a backward pass is given the number and what is made of it."""

    def function(x: Tensor, n: int) -> Tensor:
        return torch.roll(x, shift(n), -1) * torch.arange(1.0, 8.0)

    options = {"runtime": runtime, "fallback": False}
    compiled = torch.compile(function, backend="hostjit", options=options)
    programs = 0
    for number in (2, 3, 5, 7, 4, 12):
        x, twin = leaf(2, 7), leaf(2, 7)
        twin.data.copy_(x.data)
        found, expected = compiled(x, number), function(twin, number)
        found.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close((found, x.grad), (expected, twin.grad))
        if number == 3:
            programs = Specializer.num_programs
    assert Specializer.num_programs == programs


def test_gradients_switched_inside(runtime: str) -> None:
    def enables(x: Tensor) -> Tensor:
        with torch.enable_grad():
            return x * 2

    def disables(x: Tensor) -> Tensor:
        torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(True)
        return y

    check(disables, (leaf(3),), runtime=runtime)
    with torch.no_grad():
        check(enables, (leaf(3),), runtime=runtime)


def test_the_same_function_with_and_without_gradients(runtime: str) -> None:
    module = nn.Linear(4, 2)
    compiled = torch.compile(module, backend="hostjit", options={"runtime": runtime})
    x = torch.randn(3, 4)
    for _ in range(2):
        assert compiled(x).requires_grad
        with torch.no_grad():
            assert not compiled(x).requires_grad
        torch.testing.assert_close(compiled(x), module(x))


def test_an_encoder_layer_with_dropout(runtime: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    check(lambda layer, x: layer(x), (layer, leaf(2, 3, 8)), runtime=runtime)


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (2, 3, 8, 8)),
        (nn.GroupNorm(2, 4, affine=False), (2, 4, 6)),
        (nn.LayerNorm(6, bias=False), (3, 6)),
        (nn.ConvTranspose1d(3, 4, 3), (2, 3, 8)),
    ],
)
def test_operators_that_leave_gradients_out(
    module: nn.Module, sizes: tuple[int, ...], runtime: str
) -> None:
    for x in (torch.randn(sizes), leaf(*sizes)):
        check(lambda module, x: module(x).sin(), (module, x), runtime=runtime)


def test_operators_that_check_what_they_computed(runtime: str) -> None:
    factors = torch.randn(3, 3)
    matrix = (factors @ factors.T + torch.eye(3)).requires_grad_()
    for function in (torch.linalg.cholesky, torch.linalg.inv, eigenvalues):
        check(function, (matrix,), runtime=runtime)
    compiled = torch.compile(torch.linalg.cholesky, backend="hostjit")
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(torch.zeros(3, 3, requires_grad=True))


@pytest.mark.parametrize("masked", [False, True])
def test_operators_that_check_what_they_computed_at_any_size(masked: bool, runtime: str) -> None:
    def function(x: Tensor) -> Tensor:
        matrices = x @ x.transpose(1, 2) + torch.eye(3)
        return torch.linalg.inv(matrices[matrices[:, 0, 0] > 2] if masked else matrices)

    calls = [(leaf(batch, 3, 3),) for batch in (3, 6, 7, 6)]
    check(function, *calls, runtime=runtime, dynamic=None)
    with hostjit.knobs(enable="recompile_limit(2)"):
        check(function, *calls, runtime=runtime, dynamic=True)


def test_training_steps(runtime: str) -> None:
    def steps(backend: str | None) -> list[Tensor]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        options = {"runtime": runtime}
        run = torch.compile(module, backend=backend, options=options) if backend else module
        for _ in range(3):
            optimizer.zero_grad()
            F.mse_loss(run(torch.randn(5, 8)), torch.randn(5, 4)).backward()
            optimizer.step()
        return [parameter.detach() for parameter in module.parameters()]

    torch.testing.assert_close(steps("hostjit"), steps(None))


@pytest.mark.parametrize("arguments", [{}, {"foreach": False}, {"amsgrad": True}])
def test_optimizer_steps(arguments: dict[str, Any], runtime: str) -> None:
    modules = [nn.Linear(4, 3), nn.Linear(4, 3)]
    modules[1].load_state_dict(modules[0].state_dict())
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1, **arguments) for m in modules]
    step = torch.compile(optimizers[0].step, backend="hostjit", options={"runtime": runtime})
    for _ in range(3):
        x = torch.randn(2, 4)
        for module, update in zip(modules, (step, optimizers[1].step), strict=True):
            module.zero_grad()
            module(x).pow(2).sum().backward()
            update()
    torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict())


def test_a_view_may_get_a_gradient_in_place() -> None:
    factor = leaf(4)
    row_of_input = torch.compile(lambda x: x[0], backend="hostjit")
    x = torch.randn(3, 4)
    row_of_input(x).mul_(factor)
    assert x.requires_grad


@pytest.mark.parametrize("sizes", [[(3, 4)] * 3, [(3, 4), (5, 4), (6, 4)]])
def test_a_view_of_a_result_may_get_a_gradient_in_place(sizes: list[tuple[int, int]]) -> None:
    both = torch.compile(lambda x: (lambda y: (y, y[0]))(x + 1), backend="hostjit")
    for size in sizes:
        factor = leaf(4)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="hostjit: .*results share memory")
            whole, row = both(torch.randn(size))
        assert row._base is whole
        row.mul_(factor)
        whole.sum().backward()
        assert factor.grad is not None


def test_results_with_gradients_are_not_reused() -> None:
    compiled = torch.compile(torch.tanh, backend="hostjit", options={"reuse_outputs": True})
    x, y = leaf(3), leaf(3)
    first, second = compiled(x), compiled(y)
    assert first is not second
    (first * second).sum().backward()
    torch.testing.assert_close(x.grad, (1 - x.tanh() ** 2) * y.tanh())


def step_with_backward(module: nn.Module, x: Tensor) -> Tensor:
    loss = torch.tanh(module(x)).mean()
    loss.backward()
    return loss.detach() * 2


def step_with_grad(module: nn.Module, x: Tensor) -> Tensor:
    loss = torch.tanh(module(x)).mean()
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        parameter.grad = gradient
    return loss.detach() * 2


# A pass that is compiled where Dynamo looks at every frame must not wait for itself: a hang would
# be one of the interpreter that runs this, so that another one does.
_STEPS_IN_A_PROCESS = """
import sys, torch, hostjit
sys.path[:0] = sys.argv[2:]
import test_training
test_training.compare_steps(getattr(test_training, sys.argv[1]))
"""


def compare_steps(step: Callable[[nn.Module, Tensor], Tensor]) -> None:
    module = nn.Linear(3, 1)
    compiled = torch.compile(step, backend="hostjit")
    for _ in range(2):
        x, found = torch.randn(5, 3), []
        for run in (step, compiled):
            module.zero_grad()
            found.append([run(module, x), module.weight.grad, module.bias.grad])
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("step", ["step_with_backward", "step_with_grad"])
def test_a_step_that_takes_its_gradients_itself(step: str) -> None:
    folders = map(str, Path(__file__).parents[:2])
    command = [sys.executable, "-c", _STEPS_IN_A_PROCESS, step, *folders]
    subprocess.run(command, check=True, timeout=120)


def test_dynamo_does_not_look_at_what_specializes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Linear(3, 1)
    update = hostjit.compile(torch.optim.Adam(module.parameters()).step)
    seen = []
    convert = convert_frame.ConvertFrame.__call__

    def note(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(frame.f_code.co_filename)
        return convert(self, frame, *args, **kwargs)

    monkeypatch.setattr(convert_frame.ConvertFrame, "__call__", note)

    def step(x: Tensor) -> None:
        module(x).sum().backward()
        update()

    torch.compile(step, backend="hostjit")(torch.randn(5, 3))
    assert __file__ in seen
    assert not [name for name in seen if name.startswith(os.path.dirname(hostjit.__file__))]


def inverts(x: Tensor) -> Tensor:
    result: Tensor = torch.linalg.pinv(x)
    return result


def solves(x: Tensor, y: Tensor) -> Tensor:
    result: Tensor = torch.linalg.lstsq(x, y).solution
    return result


@pytest.mark.parametrize("function", [inverts, solves])
def test_first_calls_of_complex_numbers(function: Callable[..., Any], runtime: str) -> None:
    # AOTAutograd would make them in a dispatch mode, in which these operators ignore that tensors
    # are conjugated lazily.
    count = len(inspect.signature(function).parameters)
    operands = [torch.randn(4, 3, dtype=torch.complex64) for _ in range(count)]
    calls = tuple(operand.requires_grad_() for operand in operands)
    check(function, calls, calls, runtime=runtime)


def test_operators_that_return_what_they_take_are_still_said() -> None:
    with torch.library._scoped_library("hostjit_tests", "FRAGMENT") as library:
        library.define("same(Tensor x) -> Tensor")
        library.impl("same", lambda x: x, "CPU")
        torch.library.register_fake("hostjit_tests::same", torch.empty_like, lib=library)
        same = torch.ops.hostjit_tests.same
        compiled = torch.compile(lambda x: same(x.sin()).detach() * x, backend="hostjit")
        # Where the environment has CI, PyTorch raises what it warns of elsewhere.
        with (
            torch._functorch.config.patch(error_on_custom_op_aliasing=False),
            pytest.warns(UserWarning, match="same.*alias"),
        ):
            compiled(leaf(4))


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    # One for all tests: AOTAutograd keeps the first one's, and fails with another.
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed")
def test_distributed_tensors(mesh: Any, runtime: str) -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    weight = distribute_tensor(torch.randn(4, 3), mesh, [Replicate()]).requires_grad_()
    options = {"runtime": runtime, "fallback": False}

    def function(x: Tensor) -> Tensor:
        return (x @ weight).relu() * 2

    compiled = torch.compile(function, backend="hostjit", options=options)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="hostjit")
        for needs_gradient in (False, True, True):
            x: Any = distribute_tensor(torch.randn(5, 4), mesh, [Shard(0)])
            x.requires_grad_(needs_gradient)
            with torch.set_grad_enabled(needs_gradient):
                found: Any = compiled(x)
                expected: Any = function(x)
            torch.testing.assert_close(found.to_local(), expected.to_local())
            assert found.placements == expected.placements
            if needs_gradient:
                inputs = [x, weight]
                gradients: Any = torch.autograd.grad(found.sum(), inputs)
                others: Any = torch.autograd.grad(expected.sum(), inputs)
                for ours, eager in zip(gradients, others, strict=True):
                    torch.testing.assert_close(ours.to_local(), eager.to_local())
