# SPDX-License-Identifier: Apache-2.0
"""Random distributions with parameters that are only known at the call.

PyTorch's operators take floats, for which tracing has to know them. These take numbers; once they
are traced, they are PyTorch's, so that they draw what eager mode draws.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["DRAWS", "to_pytorch"]

aten = torch.ops.aten

_library = torch.library.Library("hostjit", "FRAGMENT")
_ORIGINALS: dict[str, tuple[str, Any]] = {
    "bernoulli": ("Scalar p", aten.bernoulli.p),
    "exponential": ("Scalar rate", aten.exponential.default),
    "log_normal": ("Scalar mean, Scalar std", aten.log_normal.default),
    "normal": ("Scalar mean, Scalar std", aten.normal_functional.default),
    "uniform": ("Scalar least, Scalar most", aten.uniform.default),
}


def _define(name: str, parameters: str, original: Any) -> Any:
    def compute(x: Tensor, *numbers: float) -> Any:
        return original(x, *map(float, numbers))

    _library.define(
        f"{name}(Tensor x, {parameters}) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
    )
    torch.library.impl(_library, name, "CompositeExplicitAutograd")(compute)

    def fake(x: Tensor, *_: Any) -> Tensor:
        return torch.empty_like(x)

    torch.library.register_fake(f"hostjit::{name}", fake, lib=_library)
    return getattr(torch.ops.hostjit, name).default


DRAWS: dict[str, Any] = {name: _define(name, *made) for name, made in _ORIGINALS.items()}
"""By name: they take a tensor, for its sizes and its type, and the parameters."""


def to_pytorch(graph: torch.fx.Graph) -> None:
    """Make PyTorch's operators of these, in a graph that nothing is traced of any more."""
    for name, operator in DRAWS.items():
        for node in graph.find_nodes(op="call_function", target=operator):
            node.target = _ORIGINALS[name][1]
