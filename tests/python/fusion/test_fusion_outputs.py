# SPDX-License-Identifier: Apache-2.0
"""What a fusion returns, and what it writes to its inputs."""

from __future__ import annotations

import pytest
import torch

import hostjit
from hostjit import DataType, FusionDefinition


def test_outputs_are_returned_in_order() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        y = fd.ops.neg(x)
        for tensor in (y, x, y):
            fd.add_output(tensor)
    x = torch.randn(3)
    first, second, third = fd.execute([x])
    assert second is x and torch.equal(first, -x) and torch.equal(third, -x)


def test_an_output_is_written_to_an_input(runtime: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        s = fd.define_scalar()
        y = fd.ops.add(x, s)
        fd.add_output(y, alias_input=x)
        fd.add_output(fd.ops.mul(y, 2.0))
    compiled = hostjit.compile(fd, runtime=runtime)
    for rows, number in ((2, 1.5), (3, -1.0), (5, 0.25)):
        x = torch.randn(rows, 3)
        before, x_memory = x.clone(), x.data_ptr()
        found = compiled(x, number)
        assert len(found) == 1 and x.data_ptr() == x_memory
        torch.testing.assert_close(x, before + number)
        torch.testing.assert_close(found[0], (before + number) * 2)
    assert "fd.add_output(T2, T0)" in repr(fd)


def test_what_is_returned_and_written_is_the_input() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        y = fd.ops.relu(x)
        fd.add_output(y)
        fd.add_output(y, x)
        fd.add_output(x)
    x = torch.tensor([1.0, -1.0])
    for found in fd.execute([x]):
        assert found is x
    assert x.tolist() == [1.0, 0.0]


def test_writes_come_after_all_that_is_computed() -> None:
    """Views of inputs are returned, and written elsewhere, as they were before."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(shape=[-1, -1]), fd.define_tensor(shape=[-1, -1])
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(y, x)
        fd.add_output(fd.ops.permute(fd.ops.permute(x, [1, 0]), [1, 0]), y)
        fd.add_output(fd.ops.slice(y, [0, 0], [1, 100]))
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    old_x, old_y = x.clone(), y.clone()
    turned, row = fd.execute([x, y])
    assert torch.equal(turned, old_x.t()) and torch.equal(row, old_y[:1])
    assert torch.equal(x, old_y) and torch.equal(y, old_x)


def test_results_of_operations_that_change_nothing_are_not_the_input() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        same = fd.ops.cast(x, DataType.Float), fd.ops.clamp(x, None, None), fd.ops.set(x)
        for result in same:
            fd.add_output(result)
            with pytest.raises(hostjit.Error, match="which is no input"):
                fd.add_output(x, result)
    x = torch.randn(3)
    for found in fd.execute([x]):
        assert torch.equal(found, x) and found.data_ptr() != x.data_ptr()


def test_writes_that_do_not_fit() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1])
        y = fd.define_tensor(shape=[-1, -1])
        z = fd.ops.exp(y)
        for wrong in (fd.ops.cast(z, DataType.Half), fd.ops.sum(z, [0])):
            with pytest.raises(hostjit.Error, match=r"cannot be written to T0"):
                fd.add_output(wrong, x)
        with pytest.raises(hostjit.Error, match=r"alias_input is T2.*, which is no input"):
            fd.add_output(x, z)
        with pytest.raises(hostjit.Error, match=r"output is S5.*, expected a tensor"):
            fd.add_output(fd.ops.size(x, 0))
        fd.add_output(z, x)
    with pytest.raises(RuntimeError, match=r"shape \[1, 3\] cannot be written to an input of"):
        fd.execute([torch.zeros(2, 3), torch.zeros(1, 3)])
