# SPDX-License-Identifier: Apache-2.0
"""`hostjit.compile(graphs=...)`, as far as it can be seen without a GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import hostjit

PROGRAM = """
program @two(%x: tensor<f32, [8], cuda:0>) {
  %a = allocate() : tensor<f32, [8], cuda:0>
  launch_kernel(kernel="k", inputs=[%x], outputs=[%a], grid=[1, 1, 1], block=[8, 1, 1])
  launch_kernel(kernel="k", inputs=[%x], outputs=[%a], grid=[1, 1, 1], block=[8, 1, 1])
  return %a
}
kernel @k ptx(entry="k", parameters=[ptr, ptr]) ""
"""


def text_of(function: Any) -> str:
    return str(function.owner.compiled().program)


@pytest.mark.parametrize(
    ("choice", "is_cut"), [(None, True), ("auto", True), ("on", True), ("off", False)]
)
def test_what_is_cut(choice: str | None, is_cut: bool) -> None:
    function = hostjit.compile(PROGRAM, graphs=choice)
    assert ("graph=0" in text_of(function)) == is_cut


def test_the_knob_decides_where_nobody_chose() -> None:
    with hostjit.knobs(disable="cuda_graphs"):
        assert "graph=0" not in text_of(hostjit.compile(PROGRAM))
        assert "graph=0" in text_of(hostjit.compile(PROGRAM, graphs="auto"))


def test_other_choices_are_refused() -> None:
    with pytest.raises(hostjit.Error, match="unknown choice of graphs 'maybe', expected 'auto'"):
        hostjit.compile(torch.relu, graphs="maybe")
    function = torch.compile(torch.relu, backend="hostjit", options={"graphs": "maybe"})
    with pytest.raises(Exception, match="unknown choice of graphs 'maybe'"):
        function(torch.ones(2))


@pytest.mark.parametrize("choice", ["auto", "on", "off"])
def test_copies_and_other_ways_keep_it(choice: str) -> None:
    module = hostjit.compile(torch.nn.Linear(3, 2), graphs=choice)
    assert copy.deepcopy(module).owner.arguments()[1]["graphs"] == choice
    x = torch.ones(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(module(x), torch.nn.functional.linear(x, *module.parameters()))
    chooses = hostjit.compile(lambda x: x + 1 if x.sum() > 0 else x - 1, graphs=choice)
    for _ in range(3):
        assert torch.equal(chooses(x), x + 1)
    graph = torch.compile(torch.sin, backend="hostjit", options={"graphs": choice})
    torch.testing.assert_close(graph(x), x.sin())
