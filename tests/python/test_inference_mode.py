# SPDX-License-Identifier: Apache-2.0
"""Functions that enter and leave inference mode: results and errors are eager's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from state_of_threads import (
    AMBIENT,
    COMPILERS,
    assert_same,
    same_as_eager,
    same_state_afterwards,
)
from torch import nn

import hostjit
from hostjit.capturing.capture import capture

__all__ = ["same_state_afterwards"]

pytestmark = pytest.mark.usefixtures("same_state_afterwards")

torch.manual_seed(0)
LINEAR = nn.Linear(4, 4)
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True)


def pairs(x: torch.Tensor) -> Any:
    return x[0] * 2, x[1:]


def transposed_weight(x: torch.Tensor) -> Any:
    return x @ LINEAR.weight.t()


def attention(x: torch.Tensor) -> Any:
    return ATTENTION(x[None], x[None], x[None])[0]


def viewed(x: torch.Tensor) -> Any:
    return x.view(-1).sum()


def unbound(x: torch.Tensor) -> Any:
    return [row + 1 for row in x]


def chunked(x: torch.Tensor) -> Any:
    return x.chunk(2, -1)[0] * 2


def cached(x: torch.Tensor) -> Any:
    cache = torch.zeros(3, 4)
    return cache[1:].copy_(x[:2]) + 1


def written(x: torch.Tensor) -> Any:
    x[1:].add_(1)
    return x


def linear(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = LINEAR(x)
    return y * 2


IN_INFERENCE_MODE = [
    pairs,
    transposed_weight,
    attention,
    viewed,
    unbound,
    chunked,
    cached,
    written,
    linear,
]


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", IN_INFERENCE_MODE)
def test_inference_mode_inside_is_compiled(
    function: Callable[..., Any], compiler: str, ambient: str
) -> None:
    def body(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            return function(x)

    same_as_eager(compiler, body, ambient)
    same_as_eager(compiler, torch.inference_mode()(function), ambient)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("ambient", ["grad", "no_grad"])
@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("function", IN_INFERENCE_MODE)
def test_inference_mode_is_entered_without_python(
    function: Callable[..., Any], wrap: Callable[..., Any], ambient: str, runtime: str
) -> None:
    call = torch.inference_mode()(function)
    fast = wrap(call, runtime=runtime)
    with AMBIENT[ambient]():
        for number in range(4):
            x = torch.arange(12.0).reshape(3, 4) + number
            assert_same(fast(x.clone()), call(x.clone()))
            assert not torch.is_inference_mode_enabled()
    (specialization,) = fast.specializations
    assert specialization.describe()["route"] is None


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_an_error_leaves_inference_mode(runtime: str) -> None:
    @torch.inference_mode()
    def call(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(0, index)

    for wrap in (hostjit.compile, hostjit.capture):
        fast, x, index = wrap(call, runtime=runtime), torch.ones(3), torch.tensor([0, 2])
        for _ in range(3):
            fast(x, index)
        with pytest.raises(RuntimeError, match="out of bounds"):
            fast(x, index + 1)
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        assert fast(x, index).is_inference()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_parameter_may_be_written_in_inference_mode(compiler: str) -> None:
    expected, found = (nn.Parameter(torch.ones(3)) for _ in range(2))

    @torch.inference_mode()
    def step(weight: torch.Tensor) -> torch.Tensor:
        weight.mul_(0.5).add_(1)
        return weight

    compiled = COMPILERS[compiler](step)
    for _ in range(2):
        step(expected)
        assert compiled(found) is found
        assert found.tolist() == expected.tolist() and found.requires_grad and found.is_leaf
        assert found._version > 0


def test_inference_mode_inside_keeps_sizes_open() -> None:
    compiled = hostjit.compile(torch.inference_mode()(lambda x: (x * 2).sum(0) + x[0]))
    for size in (3, 4, 5, 6):
        x = torch.arange(float(size * 2)).reshape(size, 2)
        assert torch.equal(compiled(x), (x * 2).sum(0) + x[0])
        assert compiled(x).is_inference()
    assert len(compiled.specializations) == 2


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_graph_break_in_inference_mode(compiler: str) -> None:
    def branch(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = x[0] + 1
            y = y * 2 if y.sum() > 0 else y
        return y, y + 1

    compiled = COMPILERS[compiler](branch)
    x = torch.ones(3, 4)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = compiled(x)
        assert_same(found, branch(x))


def test_a_captured_program_runs_in_its_inference_mode() -> None:
    x = torch.ones(3, 4)
    program = capture(torch.inference_mode()(pairs), (x,))
    assert program.in_inference_mode
    assert_same(program.run(x), torch.inference_mode()(pairs)(x))


def prepared(x: torch.Tensor) -> Any:
    y = x * 2 - 1
    with torch.inference_mode():
        return LINEAR(y)


def scaled(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = LINEAR(x)
    return y * 2, y.argmax(-1), x


def viewed_outside(x: torch.Tensor) -> Any:
    row = x[:1]
    with torch.inference_mode():
        y = LINEAR(row)
    return y.squeeze(0), x[1:]


def kept(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = LINEAR(x)
    x[1:].copy_(y[1:])
    x[0] = y[0]
    return x


def twice(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = LINEAR(x)
    z = y + x
    with torch.inference_mode():
        return LINEAR(z) + LINEAR.weight.t()[0]


def array(x: torch.Tensor) -> Any:
    y = torch.from_numpy(x.numpy()).float()
    with torch.inference_mode():
        y = LINEAR(y)
    return torch.from_numpy(y.numpy()) + 1


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "function", [prepared, scaled, viewed_outside, kept, twice, array], ids=lambda f: f.__name__
)
def test_a_part_in_inference_mode_is_compiled(
    function: Callable[..., Any], compiler: str, ambient: str
) -> None:
    same_as_eager(compiler, function, ambient)


def saved_for_backward(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y * LINEAR.weight


def written_outside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y.add_(1) + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (saved_for_backward, "cannot be saved for backward"),
        (written_outside, "Inplace update to inference tensor"),
    ],
)
def test_what_inference_tensors_refuse_is_refused(
    function: Callable[..., Any], text: str, compiler: str
) -> None:
    compiled = COMPILERS[compiler](function)
    for call in (function, compiled, compiled):
        with pytest.raises(RuntimeError, match=text):
            call(torch.ones(4, 4))
    with torch.inference_mode():
        assert_same(compiled(torch.ones(4, 4)), function(torch.ones(4, 4)))


def then_outside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x[0] * 2
    return y, y + 1


def outside_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            return x[1] * 3, y


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", [then_outside, outside_inside])
def test_several_inference_modes_run_eagerly(
    function: Callable[..., Any], compiler: str, ambient: str
) -> None:
    is_compiled = ambient == "inference" and function is then_outside
    says = None if is_compiled else "a part of the call is computed in another inference mode"
    same_as_eager(compiler, function, ambient, says)


def test_without_a_fallback_several_inference_modes_are_refused() -> None:
    with pytest.raises(hostjit.CaptureError, match="another inference mode"):
        hostjit.compile(then_outside, fallback=False)(torch.ones(3, 4))
