# SPDX-License-Identifier: Apache-2.0
"""compiled.profile(): which nodes it lists and what it says of them. Times are not compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import hostjit


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def test_entries_are_the_nodes_with_code() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    fast = hostjit.compile(model)
    x = torch.randn(4, 32)
    profile = fast.profile(x, calls=3)
    program = fast.specializations[0].program
    assert program is not None
    ops = program.program.ops
    entries = profile.entries
    assert [entry.index for entry in entries] == sorted(entry.index for entry in entries)
    for entry in entries[:-1]:
        assert entry.op == ops[entry.index].name
        assert entry.location == ops[entry.index].location
    assert (entries[-1].op, entries[-1].index) == ("return", len(ops))
    first, tanh, second = (e for e in entries if e.op in ("linear", "launch_kernel"))
    assert (first.op, first.result, first.flops) == ("linear", "f32[4, 64]", 2 * 4 * 32 * 64)
    assert first.bytes == 4 * (4 * 32 + 64 * 32 + 64 + 4 * 64)
    assert tanh.name.startswith("tanh")
    assert (tanh.bytes, tanh.flops) == (4 * 2 * 4 * 64, None)
    assert second.flops == 2 * 4 * 64 * 8
    assert not any(entry.op in ("view", "deallocate", "constant") for entry in entries)
    assert profile.calls == 3
    assert profile.call_nanoseconds > 0
    assert profile.total_nanoseconds == sum(entry.nanoseconds for entry in entries)


def test_the_table_has_a_line_per_entry_and_the_sums() -> None:
    fast = hostjit.compile(lambda x: torch.tanh(x @ x) + 1)
    profile = fast.profile(torch.randn(8, 8), calls=2)
    header, *lines, total, call = str(profile).splitlines()
    assert header.split()[:4] == ["node", "op", "name", "result"]
    assert header.endswith("location")
    assert len(lines) == len(profile.entries)
    for line, entry in zip(lines, profile.entries, strict=True):
        assert entry.op in line and entry.location in line
    assert total.split()[0] == "total"
    assert str(2 * 8 * 8 * 8) in total.split()
    assert call.split()[0] == "call"
    assert "test_profile.py:" in str(profile)


def test_operators_of_aten() -> None:
    fast = hostjit.compile(lambda x, w: torch.logcumsumexp(torch.conv2d(x, w, stride=8), 0) * 2)
    x, w = torch.randn(2, 16, 64, 64), torch.randn(32, 16, 7, 7)
    expected = fast(x, w)
    entries = fast.profile(x, w, calls=2).entries
    (scan,) = (entry for entry in entries if entry.name == "aten::logcumsumexp")
    assert scan.flops is None
    assert scan.bytes == 2 * 4 * expected.numel()
    convolutions = [entry for entry in entries if "convolution" in entry.name]
    for convolution in convolutions:
        assert convolution.flops == 2 * expected.numel() * 16 * 7 * 7
    assert_close(fast(x, w), expected)


def test_operations_of_an_operator_with_keyword_arguments() -> None:
    fast = hostjit.compile(lambda c, a, b: torch.baddbmm(c, a, b, alpha=2j))
    shapes = ((3,), (2, 5, 7), (2, 7, 3))
    entries = fast.profile(*(torch.ones(shape) + 0j for shape in shapes), calls=1).entries
    assert [entry.flops for entry in entries if "baddbmm" in entry.name] == [2 * 2 * 5 * 7 * 3]


def test_a_broadcast_operand_counts_once() -> None:
    fast = hostjit.compile(lambda x: (x.expand(100, 8) + 1).sum(1))
    bytes_of = [e.bytes for e in fast.profile(torch.ones(8), calls=1).entries if e.bytes]
    assert bytes_of == [4 * (8 + 100)]


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_later_calls_are_as_before(runtime: str) -> None:
    fast = hostjit.compile(lambda x: torch.tanh(x @ x).logcumsumexp(0), runtime=runtime)
    x, other = torch.randn(4, 4), torch.randn(4, 4)
    expected = fast(other)
    entries = fast.profile(x, calls=2).entries
    assert {"matmul", "launch_kernel", "aten_call"} <= {entry.op for entry in entries}
    assert_close(fast(other), expected)
    assert len(fast.profile(x, calls=2).entries) == len(entries)
    assert len(fast.specializations) == 1


def test_inputs_are_written_at_every_call() -> None:
    fast = hostjit.compile(lambda x: x.add_(1))
    x = torch.zeros(4)
    fast.profile(x, calls=5)
    assert_close(x, torch.full((4,), 11.0))


def test_signatures_have_profiles_of_their_own() -> None:
    fast = hostjit.compile(lambda x, *, scale: (x * scale).sum())
    for size in (4, 8, 12, 8):
        entries = fast.profile(torch.ones(size), scale=2.0, calls=1).entries
        assert sum(entry.bytes for entry in entries) == 4 * (size + 1)


def test_a_program_by_hand() -> None:
    fast = hostjit.compile(
        """
program @double(%x: tensor<f32, [4], cpu>) {
  %y = aten_call(target="aten::add.Tensor", inputs=[%x], arguments=[$0, $0, 1]) : tensor<f32, [4], cpu> loc("here:1")
  return %y
}
"""  # noqa: E501
    )
    first, last = fast.profile(torch.ones(4), calls=1).entries
    assert (first.op, first.name, first.location) == ("aten_call", "aten::add.Tensor", "here:1")
    assert (first.bytes, last.op) == (32, "return")


def test_an_error_is_that_of_a_call() -> None:
    fast = hostjit.compile(lambda x, i: torch.index_select(x, 0, i).cumsum(0))
    x, good, bad = torch.randn(4), torch.tensor([0, 1]), torch.tensor([0, 9])
    expected = fast(x, good)
    with pytest.raises((IndexError, RuntimeError), match="index"):
        fast.profile(x, bad, calls=2)
    assert_close(fast(x, good), expected)
    assert fast.profile(x, good, calls=2).entries


def test_what_runs_eagerly_has_no_profile() -> None:
    fast = hostjit.compile(lambda x: x * 2)
    warns = pytest.warns(UserWarning, match="runs eagerly")
    with warns, pytest.raises(hostjit.Error, match="runs eagerly"):
        fast.profile(torch.ones(4).to_sparse())


def test_no_calls_are_refused() -> None:
    fast = hostjit.compile(lambda x: x + 1)
    with pytest.raises(ValueError, match="at least 1"):
        fast.profile(torch.ones(2), calls=0)


def test_code_of_profiles_is_not_taken_for_that_of_calls() -> None:
    """The object cache has both under the same program."""

    def make() -> hostjit._C.CompiledFunction:
        return hostjit.compile(lambda x: torch.cos(x) * 3 + x)

    x = torch.randn(16)
    first = make()
    expected = first(x)
    code = first.asm()
    assert "hostjit_now" not in code
    assert first.profile(x, calls=1).entries
    assert first.asm() == code
    hits = hostjit.cache.report()["hits"]
    again = make()
    assert_close(again(x), expected)
    assert again.profile(x, calls=1).entries
    assert hostjit.cache.report()["hits"] == hits + 2
