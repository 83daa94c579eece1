# SPDX-License-Identifier: Apache-2.0
"""Arguments with open sizes that a graph does not take: it may take their sizes, or nothing.

Their sizes must come from somewhere, and must not be taken for known ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.source import LocalSource, TensorProperty
from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

from hostjit.capturing.dynamic_dims import DynamicDims
from hostjit.capturing.dynamo.call import DynamoCapture
from hostjit.capturing.numbers.open_numbers import OF_ARGUMENTS
from hostjit.capturing.numbers.steps import SizeOf, sizes_of

__all__ = ["Lent", "lent_arguments", "open_sizes"]

# Arguments with fake tensors.
Lent = Sequence[tuple[torch.Tensor, torch.Tensor]]


def lent_arguments(
    traced: DynamoCapture,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    leaves: Sequence[torch.Tensor],
    dynamic: DynamicDims,
) -> Lent:
    """Return them with fake tensors, whose sizes are those that Dynamo knows theirs by."""
    taken = {id(tensor) for tensor in traced.inputs}
    if traced.graph_module is None or all(id(leaves[leaf]) in taken for leaf in dynamic):
        return []
    symbols = _symbols_by_tensor(traced, args, kwargs)
    lent: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for leaf, dims in dynamic.items():
        tensor = leaves[leaf]
        if id(tensor) not in taken:
            fake = _fake(traced, tensor, leaf, dims)
            for dim, symbol in symbols.get(id(tensor), []):
                # Asking makes one size of the two.
                assert bool(fake.shape[dim] == symbol)
            lent[id(tensor)] = tensor, fake
    return list(lent.values())


def open_sizes(
    traced: DynamoCapture, lent: Lent, leaves: Sequence[torch.Tensor]
) -> dict[Any, SizeOf]:
    """Return by symbols where the arguments of a call have open sizes."""
    if traced.graph_module is None:
        return {}
    fakes = [node.meta["example_value"] for node in traced.tensor_nodes()]
    by_identity = {id(leaf): index for index, leaf in reversed([*enumerate(leaves)])}
    pairs = [*zip(traced.inputs, fakes, strict=True), *lent]
    return sizes_of(
        (by_identity[id(tensor)], fake) for tensor, fake in pairs if id(tensor) in by_identity
    )


def _symbols_by_tensor(
    traced: DynamoCapture, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[int, list[tuple[int, torch.SymInt]]]:
    """The sizes of arguments that Dynamo has met, by the identity of these: dims and symbols."""
    scope = {"L": traced.scope(args, kwargs)}
    environment = traced.fake_mode.shape_env
    found: dict[int, list[tuple[int, torch.SymInt]]] = {}
    for symbol, sources in environment.var_to_sources.items():
        for source in sources:
            size = getattr(source, "prop", None) is TensorProperty.SIZE
            path = str(source.base.name) if size else ""
            if path.startswith(OF_ARGUMENTS):
                tensor = eval(path, scope)  # a path that Dynamo made
                number = environment.create_symintnode(symbol, hint=tensor.shape[source.idx])
                found.setdefault(id(tensor), []).append((source.idx, number))
    return found


def _fake(traced: DynamoCapture, tensor: torch.Tensor, leaf: int, dims: Any) -> torch.Tensor:
    kinds = [
        DimDynamic.DYNAMIC if dim in dims else DimDynamic.STATIC for dim in range(tensor.dim())
    ]
    fake: torch.Tensor = traced.fake_mode.from_tensor(
        tensor,
        symbolic_context=StatelessSymbolicContext(dynamic_sizes=kinds),
        source=LocalSource(f"leaf_{leaf}"),
    )
    return fake
