# SPDX-License-Identifier: Apache-2.0
"""The text of a definition: Python that defines the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hostjit.fusion.values import Scalar, Tensor

__all__ = ["call_text", "definition_text", "literal", "script_text"]

_IMPORT = "from hostjit import DataType, FusionDefinition\n"


def call_text(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the call of an operation."""
    parts = [literal(arg) for arg in args]
    parts += [f"{key}={literal(value)}" for key, value in kwargs.items()]
    return f"fd.ops.{name}({', '.join(parts)})"


def definition_text(lines: Sequence[str]) -> str:
    """Return a module with a function that defines a fusion."""
    body = "".join(f"    {line}\n" for line in lines or ["pass"])
    return f"{_IMPORT}\n\ndef nvfuser_fusion(fd: FusionDefinition) -> None:\n{body}"


def script_text(definition: str, inputs: Sequence[Any] | None) -> str:
    """Return a script that defines a fusion, and runs it on inputs like these."""
    text = f"# torch version: {torch.__version__}\nimport torch\n\n{definition}\n\n"
    text += "with FusionDefinition() as fd:\n    nvfuser_fusion(fd)\n"
    if inputs is not None:
        entries = "".join(f"    {_input_text(value)},\n" for value in inputs)
        text += f"\ninputs = [\n{entries}]\noutputs = fd.execute(inputs)\n"
    return text


def literal(value: Any) -> str:
    """Return Python for a value, or a list of values, of a definition."""
    if isinstance(value, Tensor) or (isinstance(value, Scalar) and value.name):
        return value.name
    if isinstance(value, Scalar):
        return literal(value.value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    return repr(value)


def _input_text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return literal(value)
    device = "cpu" if value.device.type == "meta" else str(value.device)
    made = f"dtype={value.dtype}, device={device!r}"
    if value.is_contiguous():
        return f"torch.testing.make_tensor({tuple(value.shape)}, {made})"
    pairs = zip(value.shape, value.stride(), strict=True)
    extent = 1 + sum((size - 1) * stride for size, stride in pairs) if value.numel() else 0
    memory = f"torch.testing.make_tensor(({extent},), {made})"
    return f"{memory}.as_strided({tuple(value.shape)}, {tuple(value.stride())})"
