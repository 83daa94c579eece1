# SPDX-License-Identifier: Apache-2.0
"""Which device a node computes on, and which devices a program has kernels for."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from hostjit import _C
from hostjit.lowering.types import tensor_type

__all__ = [
    "CPU",
    "device_of",
    "is_number_of_the_host",
    "kernel_devices",
    "numbers_of_the_host",
    "on_cuda",
]

CPU = torch.device("cpu")


def device_of(node: Node) -> torch.device | None:
    """The device of a node's tensor, or of the first that has one among several results."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return value.device
    values = value if isinstance(value, list | tuple) else [value]
    return next((item.device for item in values if isinstance(item, torch.Tensor)), None)


def kernel_devices(graph: Graph) -> frozenset[torch.device]:
    """The CPU, and the one CUDA device that a program launches on: that of the first tensor on one.

    What is on others is left to PyTorch.
    """
    devices = (device_of(node) for node in graph.nodes)
    cuda = (device for device in devices if device is not None and device.type == "cuda")
    return frozenset((CPU, *[device for device in [next(cuda, None)] if device]))


def on_cuda(value: _C.Value) -> bool:
    """Whether a tensor of the program is on a CUDA device."""
    return tensor_type(value).device.startswith("cuda")


def is_number_of_the_host(node: Node) -> bool:
    """Whether a node is a tensor without dims on the CPU: operators on any device take it."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.device == CPU


def numbers_of_the_host(node: Node) -> list[Node]:
    """The operands of a node on another device that are tensors without dims on the CPU."""
    if device_of(node) == CPU:
        return []
    return [operand for operand in node.all_input_nodes if is_number_of_the_host(operand)]
