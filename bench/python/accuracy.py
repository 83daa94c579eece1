# SPDX-License-Identifier: Apache-2.0
"""The largest errors of one-argument functions over every float32, of hostjit and of eager.

python bench/python/accuracy.py
python bench/python/accuracy.py --functions tanh,erf --stride 4096

Each of the 2**32 float32 goes through the compiled kernel; float64 is the reference. A function
takes a few minutes on one core; --stride takes every n-th float32 only.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from names import names_of
from torch import Tensor
from ulp import ulp_errors

import hostjit

CHUNK = 1 << 16

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Measured:
    """A function of float32 and its reference in float64, where the formula itself is not one."""

    function: Function
    exact: Function | None = None


def exact_gelu(x: Tensor) -> Tensor:
    """Keep the digits that 1 + erf loses for negative numbers."""
    return x * 0.5 * torch.erfc(-x * math.sqrt(0.5))


def exact_gelu_tanh(x: Tensor) -> Tensor:
    """(1 + tanh(y)) / 2 is sigmoid(2 y), without cancellation."""
    return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


FUNCTIONS = {
    "exp": Measured(torch.exp),
    "exp2": Measured(torch.exp2),
    "expm1": Measured(torch.expm1),
    "log": Measured(torch.log),
    "log2": Measured(torch.log2),
    "log10": Measured(torch.log10),
    "log1p": Measured(torch.log1p),
    "sin": Measured(torch.sin),
    "cos": Measured(torch.cos),
    "tanh": Measured(torch.tanh),
    "erf": Measured(torch.erf),
    "sigmoid": Measured(torch.sigmoid),
    "silu": Measured(F.silu),
    "gelu": Measured(F.gelu, exact_gelu),
    "gelu_tanh": Measured(lambda x: F.gelu(x, approximate="tanh"), exact_gelu_tanh),
    "softplus": Measured(F.softplus, lambda x: torch.where(x > 20, x, x.exp().log1p())),
    "elu": Measured(F.elu),
    "mish": Measured(F.mish),
    "logsigmoid": Measured(F.logsigmoid),
}


@dataclass
class Worst:
    """The largest error so far and where it is; results that are rounded right count as 0.5."""

    error: float = 0.5
    place: float = math.nan

    def add(self, x: Tensor, result: Tensor, exact: Tensor, rounded: Tensor) -> None:
        # Few results differ from the rounded exact ones; the error of the others is at most 0.5.
        differs = (result.view(torch.int32) != rounded.view(torch.int32)).nonzero().squeeze(1)
        if differs.numel() == 0:
            return
        error, index = ulp_errors(result[differs], exact[differs]).max(0)
        if float(error) > self.error:
            self.error, self.place = float(error), float(x[differs[index]])

    def __str__(self) -> str:
        return f"{self.error:.3g} at {self.place:.9g}"


def every_float32(stride: int) -> Iterator[Tensor]:
    """Yield vectors of CHUNK floats; the last is filled up with the largest bits."""
    steps = torch.arange(CHUNK) * stride
    for begin in range(-(1 << 31), 1 << 31, CHUNK * stride):
        numbers = (steps + begin).clamp_(max=(1 << 31) - 1).to(torch.int32)
        yield numbers.view(torch.float32)


def measure(measured: Measured, stride: int) -> tuple[Worst, Worst]:
    """Return the worst of hostjit and of eager."""
    function = measured.function
    exact_of = measured.exact or function
    compiled = hostjit.compile(lambda x: function(x))
    ours, eager = Worst(), Worst()
    for x in every_float32(stride):
        exact = exact_of(x.double())
        rounded = exact.float()
        ours.add(x, compiled(x), exact, rounded)
        eager.add(x, function(x), exact, rounded)
    return ours, eager


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=names_of(FUNCTIONS), default=list(FUNCTIONS))
    parser.add_argument("--stride", type=int, default=1, help="every n-th float32; 1 is all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| function | hostjit, largest error in ulp | eager |\n| --- | --- | --- |")
    for name in arguments.functions:
        ours, eager = measure(FUNCTIONS[name], arguments.stride)
        print(f"| {name} | {ours} | {eager} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
