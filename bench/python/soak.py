# SPDX-License-Identifier: Apache-2.0
"""Calls one compiled function from many threads with mixed shapes, and checks every result.

    python bench/python/soak.py --seconds 60 --threads 8

Prints the number of calls; exits with 1 when a result was wrong or a call failed.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import hostjit

__all__ = ["soak"]

WIDTH = 16


def mixed(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A product, a kernel, a reduction, a call through PyTorch and a view."""
    y = torch.tanh(x @ weight) + x
    return y.sort(-1).values.softmax(-1), y.sum(0)[None]


def soak(
    compiled: Callable[..., Any], seconds: float, num_threads: int, sizes: tuple[int, ...]
) -> tuple[int, list[str]]:
    """Call for so long, each size twice at least; return how many calls and what went wrong."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(WIDTH, WIDTH, generator=generator)
    inputs = [torch.randn(size, WIDTH, generator=generator) for size in sizes]
    with torch.no_grad():
        expected = [mixed(x, weight) for x in inputs]
    end = time.monotonic() + seconds
    calls = [0] * num_threads
    failures: list[str] = []
    go = threading.Barrier(num_threads)

    def work(number: int) -> None:
        torch.set_grad_enabled(False)  # of this thread
        go.wait()  # the first calls race for the compilations
        while not failures and (calls[number] < 2 * len(sizes) or time.monotonic() < end):
            index = (calls[number] + number) % len(sizes)
            try:
                torch.testing.assert_close(compiled(inputs[index], weight), expected[index])
            except Exception as error:
                failures.append(f"{sizes[index]} rows: {error!r}")
            calls[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(calls), failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=8)
    arguments = parser.parse_args()
    wrong = False
    peers: dict[str, Callable[..., Any]] = {
        "hostjit.compile": hostjit.compile(mixed),
        "hostjit.compile, evaluator": hostjit.compile(mixed, runtime="evaluator"),
        "torch.compile": torch.compile(mixed, backend="hostjit", dynamic=False),
    }
    for name, compiled in peers.items():
        sizes = (1, 2, 3, 5, 8, 64, 200)
        count, failures = soak(compiled, arguments.seconds / len(peers), arguments.threads, sizes)
        print(f"{name}: {count} calls, {len(failures)} failures", *failures[:3], sep="\n  ")
        wrong = wrong or bool(failures)
    sys.exit(wrong)


if __name__ == "__main__":
    main()
