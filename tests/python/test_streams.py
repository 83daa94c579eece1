# SPDX-License-Identifier: Apache-2.0
"""Streams, as far as they can be seen without a GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.fx.traceback import annotate

import hostjit

PROGRAM = """
program @branches(%x: tensor<f32, [8], cuda:0>) {
  %a = allocate() : tensor<f32, [8], cuda:0>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%a], grid=[1, 1, 1], block=[8, 1, 1])
  %b = allocate() : tensor<f32, [8], cuda:0>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%b], grid=[1, 1, 1], block=[8, 1, 1])
  return %a, %b
}
kernel @k ptx(entry="k", parameters=[ptr, ptr]) ""
"""


def text_of(function: Any) -> str:
    return str(function.owner.compiled().program)


@pytest.mark.parametrize(("count", "num_streams"), [(None, 0), (1, 0), (2, 1), (8, 1)])
def test_branches_get_streams(count: int | None, num_streams: int) -> None:
    function = hostjit.compile(PROGRAM, streams=count, graphs="off")
    assert text_of(function).count("pool_stream") == num_streams


def test_the_knob_decides_where_nobody_chose() -> None:
    with hostjit.knobs(enable="spread_streams(2)", disable="cuda_graphs"):
        assert "pool_stream" in text_of(hostjit.compile(PROGRAM))
        assert "pool_stream" not in text_of(hostjit.compile(PROGRAM, streams=1))


def test_one_graph_needs_no_streams() -> None:
    text = text_of(hostjit.compile(PROGRAM, streams=2))
    assert "pool_stream" not in text and "graph=0" in text


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True])
def test_other_numbers_are_refused(count: Any) -> None:
    with pytest.raises(hostjit.Error, match="'streams' is a number of streams from 1 on, got"):
        hostjit.compile(torch.relu, streams=count)
    function = torch.compile(torch.relu, backend="hostjit", options={"streams": count})
    with pytest.raises(Exception, match="'streams' is a number of streams"):
        function(torch.ones(2))


def test_copies_keep_it() -> None:
    module = hostjit.compile(torch.nn.Linear(3, 2), streams=3)
    assert copy.deepcopy(module).owner.arguments()[1]["streams"] == 3
    x = torch.ones(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(module(x), torch.nn.functional.linear(x, *module.parameters()))


def test_an_input_that_is_a_stream_has_to_be_one() -> None:
    function = hostjit.compile(
        "program @p(%x: tensor<f32, [8], cpu>, %s: stream) {\n  return %x\n}\n"
    )
    with pytest.raises(hostjit.Error, match=r"input %s is a int, expected a torch\.Stream"):
        function(torch.ones(8), 3)


def on_stream(x: torch.Tensor) -> torch.Tensor:
    # What Dynamo makes of `with torch.cuda.stream(s)`.
    with annotate({"stream": 1}):
        y = x * 2
    return y + 1


def test_streams_of_the_user_are_eager() -> None:
    x = torch.ones(4)
    with pytest.raises(hostjit.CaptureError, match="it works on streams of its own"):
        hostjit.compile(on_stream, fallback=False)(x)
    with pytest.warns(UserWarning, match="it works on streams of its own"):
        assert torch.equal(hostjit.compile(on_stream)(x), x * 2 + 1)
    with pytest.warns(UserWarning, match="it works on streams of its own"):
        assert torch.equal(torch.compile(on_stream, backend="hostjit")(x), x * 2 + 1)
