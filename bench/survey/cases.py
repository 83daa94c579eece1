# SPDX-License-Identifier: Apache-2.0
"""What is compared: models of transformers with random weights, and programs in plain PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Make = Callable[[Callable[[Any], Any]], tuple[Callable[..., Any], Callable[[], Any]]]


@dataclass(frozen=True)
class ModelCase:
    """A model that `make` makes; `inputs` of each of the `sizes` are its keyword arguments."""

    make: Callable[[], nn.Module]
    inputs: Callable[..., dict[str, Any]]
    sizes: tuple[tuple[int, int], ...]
    labels: bool = False  # the tokens that it is given are those that it is to predict
    generates: bool = False


@dataclass(frozen=True)
class ProgramCase:
    """`make(compiler)` returns a function, and one that tells of the state that calls change."""

    make: Make
    inputs: Callable[[int], tuple[Any, ...]]
    steps: int = 9


def case(
    cases: dict[str, ProgramCase], inputs: Callable[[int], tuple[Any, ...]], steps: int = 9
) -> Callable[[Make], Make]:
    """Decorate what makes a program."""

    def decorate(make: Make) -> Make:
        cases[make.__name__] = ProgramCase(make, inputs, steps)
        return make

    return decorate


def mlp(*widths: int, act: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1])


def batch(*shapes: tuple[int, ...]) -> Callable[[int], tuple[Any, ...]]:
    """Inputs in batches of 4, 5 and 6."""
    return lambda n: tuple(torch.randn((4 + n % 3, *shape)) for shape in shapes)


def fixed(*shapes: tuple[int, ...]) -> Callable[[int], tuple[Any, ...]]:
    return lambda n: tuple(torch.randn(shape) for shape in shapes)


def none() -> dict[str, Any]:
    return {}
