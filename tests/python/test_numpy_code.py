# SPDX-License-Identifier: Apache-2.0
"""What NumPy computes in functions of tensors has NumPy's own types and bits."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import nn

import hostjit

numpy = pytest.importorskip("numpy")

SINGLE = numpy.linspace(0.1, 3, 4, dtype=numpy.float32)
DOUBLE = numpy.linspace(0.1, 3, 4)
INTS = numpy.arange(4)
SCALAR = numpy.array(0.1)
state = types.SimpleNamespace(mean=numpy.zeros(4), factor=numpy.float64(0.3), last=None)


def in_place(x: Any) -> Any:
    y = x.numpy()
    y += 1
    return y


def kept(x: Any) -> Any:
    state.last = (x + 1).numpy()
    return state.last


def filtered(x: Any) -> Any:
    state.mean = state.mean * 0.5 + x.numpy()
    return torch.from_numpy(state.mean) + 1


def looped(x: Any) -> Any:
    for _ in range(3):
        x = x + torch.from_numpy(numpy.tanh(x.numpy()))
    return x


def inside(x: Any) -> Any:
    return looped(x + 1) * 2


# What NumPy computes itself; the number of programs that PyTorch's parts have.
COMPUTED: list[Callable[[Any], Any]] = [
    *(in_place, kept, filtered, looped, inside),
    lambda x: numpy.sin(SINGLE),
    lambda x: x + torch.from_numpy(numpy.exp(SINGLE)),
    lambda x: DOUBLE.mean(),
    lambda x: (x * 2).numpy() * SINGLE.mean(),
    lambda x: numpy.float32(2) * (x + 1).numpy(),
    lambda x: ((x + 1).numpy() ** 2).sum(),
    lambda x: INTS / 3,
    lambda x: (x + 1).numpy()[0],
    lambda x: numpy.tanh((x * 2).numpy()),
    lambda x: (x + 1).numpy().astype(numpy.float64) @ DOUBLE,
    lambda x: (x + 1).numpy().max() > 0,
    lambda x: numpy.linalg.norm((x + 1).numpy()),
    lambda x: numpy.prod(x.shape),
    lambda x: (numpy.sqrt(2.0), x + 1),
    lambda x: x.numpy().mean(dtype=numpy.float64),
    lambda x: x[numpy.array([0, 2])],
    lambda x: torch.arange(4) * numpy.sqrt(2.0),
    lambda x: torch.arange(4) * state.factor,
    lambda x: torch.as_tensor(numpy.sqrt(2.0)),
    lambda x: torch.arange(4) * numpy.prod(x.shape),
    lambda x: x + numpy.array([1.0, 2.0])[1],
    lambda x: x * SINGLE[1] + float(DOUBLE[2]),
    # Operators that a tensor leaves to an array.
    lambda x: x * INTS,
    lambda x: x + SCALAR,
    lambda x: (x * 0.1 == SCALAR, x @ INTS),
    lambda x: x.int() - SINGLE[1:2],
    lambda x: (x * 2) / (x + 1).numpy(),
]
# Numbers that are known: one program, and no NumPy.
KNOWN: list[Callable[[Any], Any]] = [
    lambda x: x / numpy.sqrt(2.0),
    lambda x: x * 0.5 * numpy.log(2 * numpy.pi),
    lambda x: x * state.factor,
    lambda x: x * numpy.float64(0.5),
    lambda x: x * (numpy.exp(-0.5) * 2),
    lambda x: x.clamp(-numpy.inf, numpy.sqrt(2.0)),
    lambda x: x * numpy.float32(0.1) * 2,
    lambda x: x.view(1, int(numpy.prod(x.shape))),
    lambda x: (x * int(numpy.ceil(x.shape[0] / 3)), float(numpy.exp(1.5))),
    lambda x: torch.zeros(int(numpy.sqrt(16)), dtype=torch.long) + x,
    lambda x: x * numpy.prod(x.shape[:1]) + numpy.mean(x.shape),
    lambda x: (x * numpy.log2(8).item(), int(numpy.float32(2.7))),
    lambda x: x / numpy.sqrt(x.shape[0]),
]


def compare(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        for item, other in zip(found, expected, strict=True):
            compare(item, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    else:
        assert numpy.asarray(found).dtype == numpy.asarray(expected).dtype
        numpy.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def check(fast: Any, function: Any) -> None:
    for number in range(4):
        x = torch.linspace(-1, 2.7, 4) * (number + 1)
        results = []
        for call in (fast, function):
            state.mean = numpy.zeros(4)
            given = x.clone()
            results.append((call(given), given, torch.from_numpy(state.mean)))
        compare(*results)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("function", COMPUTED)
def test_types_and_values_are_numpys(function: Callable[[Any], Any], runtime: str) -> None:
    check(hostjit.compile(function, runtime=runtime), function)


@pytest.mark.parametrize("function", KNOWN)
def test_numbers_that_are_known_are_part_of_one_program(function: Callable[[Any], Any]) -> None:
    fast = hostjit.compile(function)
    with no_warnings():
        check(fast, function)
    (found,) = fast.specializations
    assert found.program is not None


BEHIND: list[Callable[[Any], Any]] = [
    lambda x: numpy.tanh((torch.exp(x) + 1).numpy()),
    lambda x: ((torch.exp(x) + 1).numpy() * DOUBLE).clip(-1, 4),
    lambda x: -(DOUBLE - (torch.exp(x) @ x).numpy()),
]


@pytest.mark.parametrize("function", BEHIND)
def test_what_numpy_computes_behind_tensors_is_a_part(function: Callable[[Any], Any]) -> None:
    fast = hostjit.compile(function)
    with pytest.warns(UserWarning, match="runs in parts.*\n*.*NumPy computes"):
        check(fast, function)
    (found,) = fast.specializations
    assert found.program is not None


def test_a_module_behind_numpy_is_compiled() -> None:
    net = nn.Linear(4, 2)

    def call(x: Any) -> Any:
        return net(x + torch.from_numpy(numpy.sqrt(SINGLE)))

    fast = hostjit.compile(call)
    with pytest.warns(UserWarning, match="runs eagerly, but for the modules that it calls"):
        check(fast, call)
    ((_, compiled),) = fast.owner._as_python._compiled
    assert "program @" in compiled.host_ir()


def test_without_fallback_numpy_is_an_error() -> None:
    fast = hostjit.compile(lambda x: x + torch.from_numpy(numpy.exp(SINGLE)), fallback=False)
    with pytest.raises(hostjit.CaptureError, match="NumPy computes exp"):
        fast(torch.ones(4))
