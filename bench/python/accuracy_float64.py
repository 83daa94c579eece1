# SPDX-License-Identifier: Apache-2.0
"""The largest errors of functions of float64 that are generated, of hostjit and of eager.

python bench/python/accuracy_float64.py
python bench/python/accuracy_float64.py --functions tanh --count 100000

Millions of random numbers from where a function varies go through the compiled kernel; long double
is the reference.
"""

import argparse
import sys

import torch
import torch.nn.functional as F
from exact_float64 import EXACT, errors_in_ulp, has_wide_numbers, points
from names import names_of
from torch import Tensor

import hostjit


def worst(name: str, x: Tensor, result: Tensor, chosen: Tensor) -> str:
    """Return the largest error among the chosen numbers and where it is."""
    errors = errors_in_ulp(name, x, result)[chosen]
    error, index = errors.max(0)
    return f"{float(error):.3g} at {float(x[chosen][index])!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=names_of(EXACT), default=list(EXACT))
    parser.add_argument("--count", type=int, default=1 << 20, help="random numbers per range")
    arguments = parser.parse_args()
    if not has_wide_numbers():
        sys.exit("a long double of this machine is no wider than a double")
    torch.set_num_threads(1)
    print("| function | hostjit | hostjit, tiny results | eager |\n| --- | --- | --- | --- |")
    for name in arguments.functions:
        function = F.silu if name == "silu" else getattr(torch, name)
        x = points(name, arguments.count)
        # Eager may turn denormal results into zeros.
        is_normal = function(x).abs() >= torch.finfo(torch.float64).smallest_normal
        ours = hostjit.compile(lambda x, function=function: function(x))(x)
        columns = [
            worst(name, x, ours, is_normal),
            worst(name, x, ours, ~is_normal),
            worst(name, x, function(x), is_normal),
        ]
        print(f"| {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
