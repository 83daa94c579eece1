# SPDX-License-Identifier: Apache-2.0
"""Functions, modules, training and signatures on CUDA tensors: both runtimes do what eager does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from beside_eager_on_gpu import assert_same, assert_same_calls, outcome
from gpu_device import DEVICE, MISSING
from gpu_functions import FUNCTIONS, IN_PARTS, RANDOM_FUNCTIONS, pointwise
from gpu_modules import MODULES, make_module
from torch import Tensor, nn
from torch.nn import functional

import hostjit

# Sums of halves are rounded once or at every step; eager does the one here and the other there.
TOLERANCES: dict[str, dict[str, float]] = {
    "float16": {"rtol": 4e-3, "atol": 4e-3},
    "bfloat16": {"rtol": 3e-2, "atol": 3e-2},
    "autocast": {"rtol": 3e-2, "atol": 3e-2},
}


def quiet(name: str) -> Any:
    """The name as a parameter; that it runs in parts or eagerly is expected."""
    return pytest.param(name, marks=pytest.mark.filterwarnings("ignore:hostjit"))


@pytest.mark.parametrize("name", [quiet(name) if name in IN_PARTS else name for name in FUNCTIONS])
def test_functions(name: str, runtime: str, device: str) -> None:
    function, arguments = FUNCTIONS[name](device)
    compiled = hostjit.compile(function, runtime=runtime)
    with torch.no_grad():
        assert_same_calls(function, compiled, arguments, **TOLERANCES.get(name, {}))


@pytest.mark.parametrize("name", RANDOM_FUNCTIONS)
def test_random_numbers_are_those_of_the_generator(name: str, runtime: str, device: str) -> None:
    function, arguments = RANDOM_FUNCTIONS[name](device)
    compiled = hostjit.compile(function, runtime=runtime)
    with torch.no_grad():
        assert_same_calls(function, compiled, arguments)


DROPOUTS: dict[str, Any] = {
    "dropout": lambda x, p: functional.dropout(x, p),
    "channels": lambda x, p: functional.dropout1d(x, p),
    "alpha": lambda x, p: functional.alpha_dropout(x, p, training=True),
    "features": lambda x, p: functional.feature_alpha_dropout(x, p, training=True),
    "attention": lambda x, p: functional.scaled_dot_product_attention(x, x, x, dropout_p=p),
}


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("name", DROPOUTS)
def test_probabilities_that_change(name: str, runtime: str, device: str) -> None:
    """Those that are open draw what known ones do."""
    function = DROPOUTS[name]
    compiled = hostjit.compile(function, runtime=runtime)
    x = torch.randn(4, 8, 16, device=device)
    for p in (0.5, 0.25, 0.125, 0.75):
        found, expected = ((torch.manual_seed(2), call(x, p))[1] for call in (compiled, function))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, runtime: str, device: str) -> None:
    module, x = make_module(name, device)
    module.eval()
    with torch.no_grad():
        assert_same_calls(module, hostjit.compile(module, runtime=runtime), (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["policy", "block"])
def test_modules_of_halves(name: str, dtype: torch.dtype, runtime: str, device: str) -> None:
    module, x = make_module(name, device)
    module.to(dtype).eval()
    compiled = hostjit.compile(module, runtime=runtime)
    with torch.no_grad():
        assert_same_calls(module, compiled, (x.to(dtype),), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", ["policy", "block"])
def test_modules_under_autocast(name: str, runtime: str, device: str) -> None:
    module, x = make_module(name, device)
    compiled = hostjit.compile(module, runtime=runtime)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert_same_calls(module, compiled, (x,), rtol=3e-2, atol=3e-2)


def test_torch_compile_with_the_backend(runtime: str, device: str) -> None:
    module, x = make_module("block", device)
    torch.compiler.reset()
    compiled = torch.compile(module, backend="hostjit", options={"runtime": runtime})
    with torch.no_grad():
        assert_same_calls(module, compiled, (x,))


# cuDNN computes the gradients of recurrent networks, with what it kept of the forward pass.
EAGER_IN_TRAINING = frozenset({"recurrent"})


@pytest.mark.parametrize("form", ["foreach", "fused"])
@pytest.mark.parametrize(
    "name", [quiet(name) if name in EAGER_IN_TRAINING else name for name in MODULES]
)
def test_training(name: str, form: str, runtime: str, device: str) -> None:
    def trained(compile: Any) -> list[Tensor]:
        module, x = make_module(name, device)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, **{form: True})
        run, update = compile(module), compile(optimizer.step)
        torch.manual_seed(1)
        gradients = []
        for _ in range(3):
            optimizer.zero_grad()
            run(x).square().mean().backward()
            gradients += [parameter.grad for parameter in module.parameters()]
            update()
        return [*module.parameters(), *module.buffers(), *gradients]

    expected = trained(lambda target: target)
    found = trained(lambda target: hostjit.compile(target, runtime=runtime))
    # Adam divides gradients by their own size: those of rounding move parameters too.
    assert_same(found, expected, rtol=1e-3, atol=3e-3)


@pytest.mark.parametrize("name", ["softmaxes", "norms", "products", "attention", "convolutions"])
def test_gradients_of_functions(name: str, runtime: str, device: str) -> None:
    function, arguments = FUNCTIONS[name](device)
    compiled = hostjit.compile(function, runtime=runtime)

    def gradients(call: Any) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in arguments]
        results = call(*leaves)
        results = results if isinstance(results, tuple) else (results,)
        total = sum(result.nan_to_num(0, 0, 0).square().sum() for result in results)
        return list(torch.autograd.grad(total, leaves))

    expected = gradients(function)
    for _ in range(3):
        for found, wanted in zip(gradients(compiled), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change(dynamic: bool | None, runtime: str, device: str) -> None:
    module, _ = make_module("block", device)
    compiled = hostjit.compile(module.eval(), runtime=runtime, dynamic=dynamic)
    with torch.no_grad():
        for batch, steps in ((2, 9), (3, 9), (3, 7), (1, 1), (5, 40), (2, 9)):
            x = torch.randn(batch, steps, 32, device=device)
            assert_same_calls(module, compiled, (x,), calls=2)


def test_alignments_that_change(runtime: str, device: str) -> None:
    """A call with aligned pointers says nothing about the next one."""
    compiled = hostjit.compile(pointwise, runtime=runtime)
    x = torch.randn(3, 1040, device=device)
    with torch.no_grad():
        for offsets in ((0, 0, 0), (1, 0, 0), (0, 2, 3), (4, 8, 12), (1, 1, 1)):
            arguments = tuple(x[i][start : start + 1024] for i, start in enumerate(offsets))
            assert_same(compiled(*arguments), pointwise(*arguments))


def test_devices_that_change(runtime: str, device: str) -> None:
    """Each device has its own specialization, and results are on the device of the arguments."""
    compiled = hostjit.compile(pointwise, runtime=runtime)
    with torch.no_grad():
        for place in (device, "cpu", device, "cpu"):
            arguments = tuple(torch.randn(5, 3, device=place) for _ in range(3))
            assert_same(compiled(*arguments), pointwise(*arguments))


def test_a_module_that_moves(runtime: str, device: str) -> None:
    module, x = make_module("policy", "cpu")
    compiled = hostjit.compile(module, runtime=runtime)
    with torch.no_grad():
        for place in ("cpu", device, "cpu"):
            module.to(place)
            assert_same(compiled(x.to(place)), module(x.to(place)))


def test_parameters_that_change(runtime: str, device: str) -> None:
    module, x = make_module("policy", device)
    other, _ = make_module("policy", device)
    compiled = hostjit.compile(module, runtime=runtime)
    with torch.no_grad():
        compiled(x)
        for parameter in other.parameters():
            parameter.mul_(0.5)
        module.load_state_dict(copy.deepcopy(other.state_dict()))
        assert_same(compiled(x), other(x))
        first = module[0]
        assert isinstance(first, nn.Linear)
        first.weight.data = first.weight.data * 2
        assert_same(compiled(x), module(x))


@pytest.mark.parametrize(
    "expression",
    [
        lambda a, b: a + b,
        lambda a, b: a @ b.t(),
        lambda a, b: torch.cat((a, b)),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: a.add_(b),
        lambda a, b: a[b.long().abs() % 2],
    ],
)
def test_mixed_devices_are_what_they_are_in_eager(
    expression: Any, runtime: str, device: str
) -> None:
    compiled = hostjit.compile(expression, runtime=runtime)
    for places in ((device, "cpu"), ("cpu", device), (device, device)):
        a, b = (torch.ones(4, 3, device=place) for place in places)
        with torch.no_grad():
            assert outcome(compiled, a.clone(), b) == outcome(expression, a.clone(), b)


@pytest.mark.skipif(not MISSING and torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_tensors_on_another_gpu(runtime: str) -> None:
    compiled = hostjit.compile(pointwise, runtime=runtime)
    with torch.no_grad():
        for places in ((0, 0, 0), (1, 1, 1), (0, 1, 1), (0, 0, 0)):
            arguments = tuple(torch.randn(5, 3, device=f"cuda:{place}") for place in places)
            assert outcome(compiled, *arguments) == outcome(pointwise, *arguments)
            if len(set(places)) == 1:
                assert_same(compiled(*arguments), pointwise(*arguments))
        assert torch.cuda.current_device() == 0
