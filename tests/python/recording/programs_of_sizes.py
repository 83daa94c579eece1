# SPDX-License-Identifier: Apache-2.0
"""Programs with operators whose results have sizes that depend on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from program_list import Programs, Step, Wrap

__all__ = ["PROGRAMS"]

PROGRAMS = Programs()


def _few(number: int) -> torch.Tensor:
    """Integers of which some are equal: as many different ones in each of three rounds."""
    values = torch.randint(0, 5, (4, 6))
    values.view(-1)[: 2 + number // 3] = torch.arange(2 + number // 3)
    return values


def _program(name: str, function: Callable[[torch.Tensor], Any], make: Any = _few) -> None:
    def sized(wrap: Wrap) -> Step:
        f = wrap(function)
        return lambda number: f(make(number))

    PROGRAMS[name] = sized


def _floats(number: int) -> torch.Tensor:
    values = _few(number).double() - 2
    values[0, 0] = float("nan")
    values[1, :2] = torch.tensor([-0.0, 0.0])
    return values


def _rows(number: int) -> torch.Tensor:
    return torch.randint(0, 2, (6, 2, 2), dtype=torch.int32)


_program("unique", lambda x: torch.unique(x) * 2)
_program("unique_all", lambda x: torch.unique(x, return_inverse=True, return_counts=True))
_program("list_of_none", lambda x: (x.relu(), len(x[:0].float().tolist()), x[:0].float().tolist()))
_program("unique_in_a_row_of_none", lambda x: torch.unique_consecutive(x[:0], return_inverse=True))
_program("unique_counts", lambda x: x.unique(return_counts=True)[1] + 1)
_program("unique_of_floats", lambda x: torch.unique(x, return_inverse=True), _floats)
_program("unique_signs", lambda x: 1 / torch.unique(x)[:2], lambda _: torch.tensor([0.0, -0.0, 1]))
_program("unique_of_bools", lambda x: torch.unique(x > 2, return_counts=True))
_program("unique_strided", lambda x: torch.unique(x.t()[::2], return_inverse=True))
_program("unique_rows", lambda x: torch.unique(x, dim=0, return_inverse=True), _rows)
_program("unique_columns", lambda x: torch.unique(x, dim=-1, return_counts=True), _rows)
_program("unique_empty", lambda x: torch.unique(x[:0]), _few)
_program("consecutive", lambda x: torch.unique_consecutive(x, return_counts=True))
_program("consecutive_all", lambda x: torch.unique_consecutive(x > 2, True, True))
_program("consecutive_rows", lambda x: torch.unique_consecutive(x, True, True, dim=0), _rows)
_program("bincount", lambda x: torch.bincount(x.view(-1)) * 2)
_program("bincount_least", lambda x: torch.bincount(x.view(-1).byte(), minlength=9))
_program("bincount_weights", lambda x: torch.bincount(x.view(-1), weights=x.view(-1).float() / 3))
_program("bincount_double", lambda x: torch.bincount(x.view(-1), weights=x.view(-1), minlength=2))
_program("histc", lambda x: torch.histc(x.float(), bins=4))
_program("argwhere", lambda x: torch.argwhere(x > 2) + 1)
_program("unique_middle", lambda x: torch.unique(x, dim=1, return_inverse=True), _rows)
_program("consecutive_middle", lambda x: x.unique_consecutive(True, dim=1), _rows)
_program("where", lambda x: torch.where(x > 2)[1] * 2)
_program("as_tuple", lambda x: x.nonzero(as_tuple=True)[0] + 1)


@PROGRAMS.register
def unique_with_gradients(wrap: Wrap) -> Step:
    weight = torch.nn.Parameter(torch.arange(5.0))

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.grad = None
        found = torch.unique(x)
        weight[found].square().sum().backward()
        return found

    f = wrap(step)
    return lambda number: (f(_few(number)), weight.grad)


@PROGRAMS.register
def bincount_raises(wrap: Wrap) -> Step:
    f = wrap(lambda x: torch.bincount(x))

    def call(number: int) -> Any:
        x = torch.tensor([1, 2, -1 if number == 5 else 2])
        try:
            return f(x)
        except RuntimeError as error:
            return float(len(str(error)))

    return call
