# SPDX-License-Identifier: Apache-2.0
"""Floats among the arguments that Dynamo traces as symbols."""

from __future__ import annotations

import contextlib
import math
import re
import threading
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.output_graph import GraphArg, TrackedFake
from torch._dynamo.variables import builder
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import DimDynamic

from hostjit.replacements import replaced_attribute

__all__ = ["keeps_floats_open"]


@contextlib.contextmanager
def keeps_floats_open(sources: Collection[str]) -> Iterator[None]:
    """Let the finite floats of these sources be inputs of the graph, as numbers, in this thread.

    Dynamo itself would pass tensors for them, and compute with the numbers read from these.
    """
    owner = threading.get_ident()
    original = builder.VariableBuilder.wrap_symfloat

    def wrap_symfloat(self: Any, value: float) -> Any:
        is_open = self.source.name in sources and math.isfinite(value)
        if is_open and threading.get_ident() == owner:
            return _wrap(self, value)
        return original(self, value)

    with (
        replaced_attribute(builder.VariableBuilder, "wrap_symfloat", wrap_symfloat),
        torch._dynamo.config.patch(specialize_float=not sources),
    ):
        yield


def _wrap(found: Any, value: float) -> Any:
    """What `VariableBuilder.wrap_symint` does for ints."""
    output, source = found.tx.output, found.source
    if found.name in output.unspec_variable_map:
        return output.unspec_variable_map[found.name]
    environment = output.shape_env
    symbol = environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    number = environment.create_symfloatnode(symbol, hint=value, source=source)
    output.tracked_fakes.append(TrackedFake(number, source, None))
    install_guard(source.make_guard(GuardBuilder.TYPE_MATCH))
    name = re.sub(r"[^a-zA-Z0-9]+", "_", found.name)
    proxy = output.root_tracer.create_graph_input(name, type(number), number, source=source)
    output.root_tracer.bound_symbols[symbol] = proxy
    variable = SymNodeVariable.create(found.tx, proxy, number, source=source)
    output.unspec_variable_map[found.name] = variable
    proxy.node.meta["grapharg"] = GraphArg(
        source,
        number,
        pass_arg_as_tensor=False,
        fake_tensor=None,
        is_tensor=False,
        example_strong_ref=number,
    )
    return variable
