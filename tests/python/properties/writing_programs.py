# SPDX-License-Identifier: Apache-2.0
"""Random programs of a seed that write through views, draw numbers and compute with sizes.

A program is the text of a function of two tensors and a number. A statement is kept if eager can
run it at two sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["WritingProgram"]

_VIEWS = (
    "{x}[1:]",
    "{x}[::2]",
    "{x}[:, 1:]",
    "{x}[..., -1]",
    "{x}[-k:]",
    "{x}[: {x}.shape[0] // 4]",
    "{x}.mT",
    "{x}.flatten()",
    "{x}.unsqueeze(0)",
    "{x}.squeeze()",
    "{x}.diagonal()",
    "{x}.expand(2, *{x}.shape)",
    "{x}.unfold(0, 2, 3)",
    "{x}.unfold(-1, 2, 1)",
    "{x}.narrow(0, -2, 1)",
    "{x}.chunk(2)[-1]",
    "{x}.view(-1, {x}.shape[-1])",
    "{x}.contiguous()",
    "{x}.detach()",
)
_WRITES = (
    "{x}.add_({y})",
    "{x}.mul_({y})",
    "{x}.copy_({y})",
    "{x}[0] = {n}",
    "{x}[..., 1:] *= {n}",
    "{x}[k:] = {y}",
    "{x}[{x} > 1] = {n}",
    "{x}.masked_fill_({x} > 0, {n})",
    "{x}.index_fill_(0, torch.tensor([0, -1]), {n})",
    "{x}.index_add_(0, torch.arange({x}.shape[0]) % 2, {x} * 2)",
    "{x}.uniform_(-1, 1)",
    "{x}.zero_()",
    "torch.mul({x}, {n}, out={x})",
    "torch._foreach_add_([{x}, {y}], 1.0)",
    "with torch.no_grad(): {x}.add_({n})",
)
_VALUES = (
    "{x} * 1",
    "{x} + {y}",
    "{x} * {y}",
    "{x} - {n}",
    "torch.where({x} > {y}, {x}, {n})",
    "{x}.clamp(-1, 1)",
    "{x}.sum(0)",
    "{x}.sum(-1, keepdim=True)",
    "{x}.amax(0, keepdim=True)",
    "{x}.cumsum(0)",
    "torch.cat([{x}, {x}])",
    "torch.rand_like({x}) * {x}",
    "torch.zeros_like({x})",
    "torch.ones({x}.shape[0] // 4)",
    "{x}.double()",
    "{x}.T @ {x}",
    "({x} if {x}.shape[0] > 5 else {x} * 2)",
)
_NUMBERS = ("0.5", "-1.25", "2", "k", "a.shape[0]", "a.numel() / 8")
_MOST_ELEMENTS = 600


class WritingProgram:
    """One program; `text` is its source.

    Args:
        seed: of the program and its data.
        needs_gradients: the first tensor requires gradients.
    """

    def __init__(self, seed: int, needs_gradients: bool) -> None:
        self._seed = seed
        self._needs_gradients = needs_gradients
        self._random = random.Random(seed)
        self._layout = self._random.choice(("rows", "rows", "columns", "every second", "one base"))
        self._lines: list[str] = []
        self._names = ["a", "b"]
        torch.manual_seed(seed)
        for _ in range(self._random.choice((4, 8, 12))):
            self._add_statement()
        # Nobody sees a difference in values that nobody returns; some are to be fused, too.
        results = self._random.sample(self._names, min(len(self._names), 4))
        self.text = "\n    ".join(
            ["def program(a, b, k):", *self._lines, f"return {', '.join(results)},"]
        )

    def function(self) -> Callable[..., Any]:
        """Return the program as a new function."""
        scope: dict[str, Any] = {"torch": torch}
        exec(compile(self.text, f"<program {self._seed}>", "exec"), scope)
        program: Callable[..., Any] = scope["program"]
        return program

    def arguments(self, size: int, call: int) -> tuple[Tensor, Tensor, int]:
        """Return the data of a call: eighths, whose sums are exact."""
        generator = torch.Generator().manual_seed(1000 * self._seed + call)

        def data(*sizes: int) -> Tensor:
            return torch.randint(-24, 25, sizes, generator=generator) / 8

        if self._layout == "columns":
            a, b = data(4, size).T, data(4, size).T
        elif self._layout == "every second":
            a, b = data(size, 4, 2)[..., 1], data(size, 4)
        else:
            a, b = data(size, 4), data(size, 4)
        if self._needs_gradients:
            a.requires_grad_()
        elif self._layout == "one base":
            b = a[1:]
        return a, b, 2

    def _scope(self, size: int) -> dict[str, Any]:
        a, b, k = self.arguments(size, 0)
        return {"torch": torch, "a": a, "b": b, "k": k}

    def _add_statement(self) -> None:
        name = f"v{len(self._lines)}"
        chosen = self._random.choices((_VIEWS, _WRITES, _VALUES), (4, 4, 3))[0]
        recent = self._names[-4:]
        text = self._random.choice(chosen).format(
            x=self._random.choice([*self._names, *recent]),
            y=self._random.choice([*self._names, *recent]),
            n=self._random.choice(_NUMBERS),
        )
        line = text if chosen is _WRITES else f"{name} = {text}"
        if not all(_runs([*self._lines, line], self._scope(size)) for size in (5, 8)):
            return
        self._lines.append(line)
        if chosen is not _WRITES:
            self._names.append(name)


def _runs(lines: list[str], scope: dict[str, Any]) -> bool:
    """Whether eager can run the lines, and leaves nothing that is large."""
    try:
        exec("\n".join(lines), scope)
    except (RuntimeError, IndexError):
        return False
    tensors = [value for value in scope.values() if isinstance(value, Tensor)]
    return all(x.numel() <= _MOST_ELEMENTS and bool(x.isfinite().all()) for x in tensors)
