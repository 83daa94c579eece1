# SPDX-License-Identifier: Apache-2.0
"""Which products of CUDA tensors are kernels, and what joins them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from cuda_programs import cuda_graph
from run_schedule import check, names

from hostjit.lowering.devices import kernel_devices
from hostjit.lowering.grouping import schedule

linear = torch.nn.functional.linear


def scheduled(function: Any, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
    def make() -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(shape, dtype=dtype) for shape in shapes)

    graph = cuda_graph(function, make)
    found = names(schedule(graph, devices=kernel_devices(graph)))
    plain = [[item] if isinstance(item, str) else item for item in found]
    kinds = [[re.sub(r"_(default|tensor)?_?\d*$", "", name) for name in item] for item in plain]
    return [
        kind if isinstance(item, list) else kind[0] for kind, item in zip(kinds, found, strict=True)
    ]


def test_what_a_product_goes_through_is_part_of_its_kernel() -> None:
    def layer(x: Any, w: Any, b: Any, y: Any) -> Any:
        return torch.tanh(linear(x, w, b)) + y

    shapes = ((2, 32), (64, 32), (64,), (2, 64))
    assert scheduled(layer, *shapes) == [["linear", "tanh", "add"]]


def test_layers_are_a_kernel_each() -> None:
    def layers(x: Any, v: Any, w: Any) -> Any:
        return linear(linear(x, v).relu(), w).relu()

    assert scheduled(layers, (64,), (64, 64), (64, 64)) == [["linear", "relu"]] * 2
    assert scheduled(layers, (2, 64), (64, 64), (1, 64)) == [["linear", "relu"]] * 2


def test_products_of_one_size_are_one_kernel() -> None:
    def both(x: Any, v: Any, w: Any) -> Any:
        return linear(x, v), linear(x, w)

    assert scheduled(both, (2, 32), (16, 32), (16, 32)) == [["linear", "linear"]]
    assert scheduled(both, (2, 32), (16, 32), (8, 32)) == [["linear"], ["linear"]]


def test_what_is_made_for_a_product_is_made_once() -> None:
    def layer(x: Any, w: Any) -> Any:
        return linear(x.exp(), w)

    assert scheduled(layer, (2, 32), (16, 32)) == [["exp"], ["linear"]]


def test_rows_of_a_product_are_not_those_of_a_softmax() -> None:
    def scores(x: Any, w: Any) -> Any:
        return torch.softmax(linear(x, w), -1)

    assert scheduled(scores, (2, 32), (32, 32)) == [["linear"], ["_softmax"]]


def test_large_products_are_the_librarys() -> None:
    def square(x: Any, w: Any) -> Any:
        return linear(x, w).relu()

    assert scheduled(square, (256, 256), (256, 256)) == ["linear", ["relu"]]
    assert scheduled(square, (1, 8192), (8192, 8192)) == [["linear", "relu"]]
    assert scheduled(square, (8, 4096), (4096, 4096)) == ["linear", ["relu"]]
    assert scheduled(square, (1, 1 << 16), (8, 1 << 16)) == ["linear", ["relu"]]


def test_what_is_no_plain_product_is_the_librarys() -> None:
    assert scheduled(lambda x: torch.mm(x, x), (4, 4)) == ["mm"]
    assert scheduled(torch.mm, (4, 4), (4, 4), dtype=torch.complex64) == ["mm"]
    assert scheduled(torch.mm, (4, 0), (0, 4)) == ["mm"]
    no_product = lambda c, x, y: torch.addmm(c, x, y, alpha=0)  # noqa: E731
    assert scheduled(no_product, (4,), (4, 4), (4, 4)) == ["addmm"]


@pytest.mark.parametrize("name", ["mm", "linear"])
def test_products_of_the_host_have_nodes(name: str) -> None:
    function = torch.mm if name == "mm" else linear
    items = check(lambda x, y: function(x, y).relu(), torch.randn(4, 4), torch.randn(4, 4))
    assert len(items) >= 2
    assert names(items)[-1] == ["relu"]
