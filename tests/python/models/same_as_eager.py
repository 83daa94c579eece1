# SPDX-License-Identifier: Apache-2.0
"""Compares what models return: containers, objects such as caches, and the tensors in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

__all__ = ["assert_same", "tensors"]


def tensors(value: Any, path: str = "result") -> Iterator[tuple[str, torch.Tensor]]:
    """Give every tensor in a result with its place there."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors(item, f"{path}.{key}")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from tensors(item, f"{path}[{index}]")
    elif type(value).__module__.startswith("transformers."):
        yield from tensors(vars(value), path)


def assert_same(found: Any, expected: Any) -> None:
    """Check types, places and values.

    The tolerances are PyTorch's for float32: the models add up to 128 products of numbers below
    one, in another order than eager does, through two layers that normalise.
    """
    assert type(found) is type(expected)
    ours, eager = dict(tensors(found)), dict(tensors(expected))
    assert list(ours) == list(eager)
    assert eager
    for path, tensor in eager.items():
        torch.testing.assert_close(
            ours[path], tensor, msg=lambda text, path=path: f"{path}: {text}"
        )
        assert ours[path].stride() == tensor.stride(), path
