# SPDX-License-Identifier: Apache-2.0
"""The cases of kernels.py: one operation each, at any number of elements."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Rows of two-dimensional cases have at most so many elements, and images so many channels.
ROW = 256
CHANNELS = 16


@dataclass(frozen=True)
class Case:
    """One operation at one size.

    flops: additions, multiplications and comparisons; a function like tanh counts as one.
    """

    family: str
    name: str
    elements: int
    function: Callable[..., Tensor]
    inputs: Sequence[Tensor]
    flops: int

    @property
    def num_bytes(self) -> int:
        """Return the least traffic: every distinct element read once, every result written."""
        output = self.function(*self.inputs)
        tensors = [*self.inputs, output]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def rows(elements: int) -> tuple[int, int]:
    """Return the shape of the two-dimensional cases."""
    width = min(elements, ROW)
    return elements // width, width


def pointwise(elements: int) -> list[Case]:
    a, b, c = (torch.randn(elements) for _ in range(3))
    column, row = torch.randn(rows(elements)[0], 1), torch.randn(rows(elements)[1])
    half = torch.randn(elements, dtype=torch.bfloat16)
    name = "pointwise"
    return [
        Case(name, "relu(a+b)*c-a", elements, fused, (a, b, c), 4 * elements),
        Case(name, "column*row+1", elements, lambda x, y: x * y + 1, (column, row), 2 * elements),
        Case(name, "bf16 a*2+1", elements, lambda x: x * 2 + 1, (half,), 2 * elements),
        Case(name, "a to bf16", elements, lambda x: x.to(torch.bfloat16), (a,), elements),
        Case(name, "where(a<b,a,c)", elements, select, (a, b, c), 2 * elements),
    ]


def complex_numbers(elements: int) -> list[Case]:
    a, b = (torch.randn(elements, dtype=torch.complex64) for _ in range(2))
    name = "complex"
    return [
        Case(name, "a*b", elements, lambda x, y: x * y, (a, b), 6 * elements),
        Case(name, "a/b", elements, lambda x, y: x / y, (a, b), 12 * elements),
        Case(name, "(a*b+conj(a))*0.5-b", elements, chained, (a, b), 12 * elements),
        Case(name, "abs", elements, torch.abs, (a,), 2 * elements),
        Case(name, "angle", elements, torch.angle, (a,), elements),
        Case(name, "exp", elements, torch.exp, (a,), 5 * elements),
        Case(name, "log", elements, torch.log, (a,), 3 * elements),
        Case(name, "sqrt", elements, torch.sqrt, (a,), 5 * elements),
    ]


def chained(a: Tensor, b: Tensor) -> Tensor:
    return (a * b + a.conj()) * 0.5 - b


def fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.relu(a + b) * c - a


def select(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.where(a < b, a, c)


def functions(elements: int) -> list[Case]:
    x = torch.rand(elements) * 4 + 0.25
    chosen: dict[str, Callable[[Tensor], Tensor]] = {
        name: getattr(torch, name)
        for name in ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "sqrt", "rsqrt")
    }
    chosen["pow"] = lambda x: torch.pow(x, 1.7)
    chosen["gelu"] = functional.gelu
    chosen["gelu_tanh"] = lambda x: functional.gelu(x, approximate="tanh")
    chosen["silu"] = functional.silu
    return [
        Case("functions", name, elements, function, (x,), elements)
        for name, function in chosen.items()
    ]


def reductions(elements: int) -> list[Case]:
    x = torch.randn(rows(elements))
    chosen: dict[str, Callable[[Tensor], Tensor]] = {
        "sum all": lambda x: x.sum(),
        "sum rows": lambda x: x.sum(1),
        "sum columns": lambda x: x.sum(0),
        "mean(x*x) rows": lambda x: (x * x).mean(1),
        "amax rows": lambda x: x.amax(1),
        "argmax rows": lambda x: x.argmax(1),
        "var rows": lambda x: x.var(1),
        "logsumexp rows": lambda x: x.logsumexp(1),
    }
    return [
        Case("reductions", name, elements, function, (x,), elements)
        for name, function in chosen.items()
    ]


def normalisations(elements: int) -> list[Case]:
    x = torch.randn(rows(elements))
    width = x.shape[1]
    weight, bias = torch.randn(width), torch.randn(width)
    family = "normalisations"
    return [
        Case(family, "softmax", elements, lambda x: x.softmax(1), (x,), 4 * elements),
        Case(family, "log_softmax", elements, lambda x: x.log_softmax(1), (x,), 4 * elements),
        Case(
            family,
            "layer_norm",
            elements,
            lambda x, w, b: functional.layer_norm(x, (width,), w, b),
            (x, weight, bias),
            7 * elements,
        ),
        Case(
            family,
            "rms_norm",
            elements,
            lambda x, w: functional.rms_norm(x, (width,), w),
            (x, weight),
            4 * elements,
        ),
    ]


def products(elements: int) -> list[Case]:
    """Make products with a square matrix of so many elements."""
    side = math.isqrt(elements)
    matrix, bias = torch.randn(side, side) / side**0.5, torch.randn(side)
    cases = []
    for batch in (1, 8, 64):
        x = torch.randn(batch, side)
        flops = 2 * batch * side * side
        cases.append(
            Case("products", f"{batch} x matmul", elements, torch.matmul, (x, matrix), flops)
        )
        layer: Sequence[Tensor] = (x, matrix, bias)
        cases.append(
            Case("products", f"{batch} x linear+relu", elements, linear_relu, layer, flops)
        )
    pair = (matrix, torch.randn(side, side))
    return [*cases, Case("products", "square", elements, torch.matmul, pair, 2 * side**3)]


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(functional.linear(x, weight, bias))


def movements(elements: int) -> list[Case]:
    x, y = torch.randn(rows(elements)), torch.randn(rows(elements))
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(x.shape[0], (x.shape[0],), generator=generator)
    places = torch.randint(x.shape[0], x.shape, generator=generator)
    family = "movements"

    def case(name: str, function: Callable[..., Any], *inputs: Tensor) -> Case:
        return Case(family, name, elements, function, inputs, 0)

    return [
        case("clone", torch.clone, x),
        case("transposed copy", lambda x: x.t().clone(memory_format=torch.contiguous_format), x),
        case("cat rows", lambda x, y: torch.cat([x, y], 1), x, y),
        case("pad", lambda x: functional.pad(x, (1, 1)), x),
        case("flip", lambda x: x.flip(1), x),
        case("index_select", lambda x, i: x.index_select(0, i), x, index),
        case("x[index] * 2", lambda x, i: x[i] * 2, x, index),
        case("embedding+norm", embedding_norm, x, index),
        case("gather", lambda x, i: x.gather(0, i), x, places),
    ]


def images(elements: int) -> list[Case]:
    """Make operations across channels and across positions, in both layouts."""
    positions = max(1, elements // (2 * CHANNELS))
    width = 1 << (positions.bit_length() // 2)
    weight, bias = torch.rand(CHANNELS), torch.randn(CHANNELS)
    chosen: dict[str, Callable[..., Tensor]] = {
        "mean of positions": lambda x, w, b: x.mean((2, 3)),
        "sum of channels": lambda x, w, b: x.sum(1),
        "softmax": lambda x, w, b: x.softmax(1),
        "log_softmax": lambda x, w, b: x.log_softmax(1),
        "group_norm": lambda x, w, b: functional.group_norm(x, 4, w, b),
        "batch_norm": lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        "every second * 2": lambda x, w, b: x[..., ::2] * 2,
    }
    cases = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, CHANNELS, max(1, positions // width), width).contiguous(
            memory_format=layout
        )
        ending = " channels_last" if layout is torch.channels_last else ""
        for name, function in chosen.items():
            operands = (x, weight, bias)
            cases.append(Case("images", name + ending, x.numel(), function, operands, x.numel()))
    return cases


def embedding_norm(weight: Tensor, index: Tensor) -> Tensor:
    return functional.layer_norm(functional.embedding(index, weight), weight.shape[1:])


FAMILIES: dict[str, Callable[[int], list[Case]]] = {
    "pointwise": pointwise,
    "functions": functions,
    "complex": complex_numbers,
    "reductions": reductions,
    "normalisations": normalisations,
    "products": products,
    "movements": movements,
    "images": images,
}
