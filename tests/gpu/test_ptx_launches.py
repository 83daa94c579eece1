# SPDX-License-Identifier: Apache-2.0
"""Host IR programs that launch PTX: chains, grids that follow from sizes, streams, bad launches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from beside_eager_on_gpu import assert_same
from gpu_device import DEVICE, MISSING

import hostjit

KERNEL = (Path(__file__).parents[2] / "bench" / "gpu" / "add_one.ptx").read_text()
NAMED = f'kernel @add_one ptx(entry="add_one", parameters=[ptr, ptr, i64]) """\n{KERNEL}"""\n'


def chain(launches: int, block: int = 128) -> str:
    tensor = "tensor<f32, [100], cuda:0>"
    lines = [f"program @chain(%x0: {tensor}) {{", "  %n = index_constant(value=100) : index"]
    for i in range(launches):
        lines.append(f"  %x{i + 1} = allocate() : {tensor}")
        lines.append(
            f'  launch_kernel(kernel="add_one", inputs=[%x{i}], outputs=[%x{i + 1}], '
            f"scalars=[%n], grid=[1, 1, 1], block=[{block}, 1, 1])"
        )
    return "\n".join([*lines, f"  return %x{launches}", "}", NAMED])


OPEN = f"""program @open(%x: tensor<f32, [n], cuda:0>) {{
  %n = size(source=%x, dim=0) : index
  %size = index_constant(value=32) : index
  %blocks = index_binary(operation=ceildiv, lhs=%n, rhs=%size) : index
  %y = allocate() : tensor<f32, [n], cuda:0>
  launch_kernel(kernel="add_one", inputs=[%x], outputs=[%y], scalars=[%n], grid=[blocks, 1, 1],
                block=[32, 1, 1])
  return %y
}}
{NAMED}"""


def unsupported() -> str:
    if MISSING or DEVICE != "cuda":
        return MISSING or "launches on a CUDA device"
    try:
        hostjit.compile(chain(1))
    except hostjit.Error as error:
        return f"this build has no launches of PTX: {error}"
    return ""


pytestmark = pytest.mark.skipif(bool(unsupported()), reason=unsupported())


@pytest.mark.parametrize("launches", [1, 2, 100])
def test_chains(launches: int, runtime: str) -> None:
    program = hostjit.compile(chain(launches), runtime=runtime)
    for value in (0.0, 7.0):
        x = torch.full((100,), value, device="cuda")
        for _ in range(3):
            assert_same(program(x), x + launches)


def test_a_chain_on_the_callers_stream(runtime: str) -> None:
    program = hostjit.compile(chain(3), runtime=runtime)
    x = torch.zeros(100, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)
        x.fill_(5)
        result = program(x)
    side.synchronize()
    assert_same(result, torch.full_like(x, 8))


def test_a_grid_that_follows_from_sizes(runtime: str) -> None:
    program = hostjit.compile(OPEN, runtime=runtime)
    for size in (1, 31, 32, 33, 1000, 7, 1):
        x = torch.rand(size, device="cuda")
        assert_same(program(x), x + 1)


def test_a_launch_that_the_driver_refuses(runtime: str) -> None:
    """No block has so many threads. The message names the kernel, and the next call works."""
    x = torch.ones(100, device="cuda")
    bad = hostjit.compile(chain(2, block=4096), runtime=runtime)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="add_one"):
            bad(x)
    torch.cuda.synchronize()
    assert_same(hostjit.compile(chain(2), runtime=runtime)(x), x + 2)


def test_text_that_is_no_kernel(runtime: str) -> None:
    text = chain(1).replace("add.f32", "add.f77")
    with pytest.raises(RuntimeError, match="add_one"):
        hostjit.compile(text, runtime=runtime)(torch.ones(100, device="cuda"))
    x = torch.ones(100, device="cuda")
    assert_same(hostjit.compile(chain(1), runtime=runtime)(x), x + 1)


def test_an_input_on_another_device(runtime: str) -> None:
    program = hostjit.compile(chain(1), runtime=runtime)
    with pytest.raises((RuntimeError, TypeError, ValueError), match="cuda"):
        program(torch.ones(100))
