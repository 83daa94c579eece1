# SPDX-License-Identifier: Apache-2.0
"""Random draws with open parameters; see `parameters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hostjit.capturing.numbers.open_draws import DRAWS
from hostjit.capturing.numbers.parameter_function import NumberFunction

__all__ = ["DRAWING_FUNCTIONS", "DRAWING_METHODS"]

_NUMBERS = (int, float)


def _bernoulli_(self: Tensor, p: float = 0.5) -> Tensor:
    return self.copy_(DRAWS["bernoulli"](self, p))


def _exponential_(self: Tensor, lambd: float = 1.0) -> Tensor:
    return self.copy_(DRAWS["exponential"](self, lambd))


def _log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0) -> Tensor:
    return self.copy_(DRAWS["log_normal"](self, mean, std))


def _normal_(self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    return self.copy_(DRAWS["normal"](self, mean, std))


def _uniform_(self: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    return self.copy_(DRAWS["uniform"](self, a, b))


def _is_plain(given: Mapping[str, Any]) -> bool:
    """Whether the draws are of floats, and in the order of memory."""
    x = given["self"]
    is_plain = isinstance(x, Tensor) and x.is_floating_point() and not x.requires_grad
    return is_plain and x.is_contiguous()


def _normal(
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    result: Tensor = DRAWS["normal"](torch.empty(size, dtype=dtype, device=device), mean, std)
    return result


def _is_of_numbers(given: Mapping[str, Any]) -> bool:
    are_numbers = not any(isinstance(given[name], Tensor) for name in ("mean", "std"))
    is_complex = given["dtype"] is not None and given["dtype"].is_complex
    return are_numbers and given["requires_grad"] is False and not is_complex


DRAWING_METHODS: dict[str, NumberFunction] = {
    "bernoulli_": NumberFunction(("p",), _bernoulli_, _is_plain, _NUMBERS),
    "exponential_": NumberFunction(("lambd",), _exponential_, _is_plain, _NUMBERS),
    "log_normal_": NumberFunction(("mean", "std"), _log_normal_, _is_plain, _NUMBERS),
    "normal_": NumberFunction(("mean", "std"), _normal_, _is_plain, _NUMBERS),
    "uniform_": NumberFunction(("a", "b"), _uniform_, _is_plain, _NUMBERS),
}
"""Methods of tensors, by name."""

DRAWING_FUNCTIONS: dict[Callable[..., Any], NumberFunction] = {
    torch.normal: NumberFunction(("mean", "std"), _normal, _is_of_numbers, _NUMBERS),
}
