# SPDX-License-Identifier: Apache-2.0
"""Records what a function does to fake tensors as a graph of operators.

This is the part of `make_fx` that is needed, without its symbolic tracer, which patches
`nn.Module` for the time of a trace: that would alarm every program that watches the class, and
disturb captures in other threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._higher_order_ops import auto_functionalize, effects
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    disable_autocast_cache,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree

from hostjit.capturing.graph_module import graph_module
from hostjit.replacements import replaced_attribute, replaced_items

__all__ = ["record"]


def record(
    function: Callable[..., Sequence[Any]], inputs: Sequence[Any], fake_mode: Any
) -> torch.fx.GraphModule:
    """Run `function` on fake tensors and return the graph of the operators that it called.

    Args:
        function: returns a flat list of tensors and constants.
        inputs: fake tensors of `fake_mode` and symbolic numbers; one placeholder each.
        fake_mode: in force during the run.
    """
    tracer = PythonKeyTracer()
    tracer.root = torch.nn.Module()
    tracer.graph = torch.fx.Graph(tracer_cls=PythonKeyTracer)
    tracer.tensor_attrs = {}
    placeholders = [
        tracer.create_proxy("placeholder", f"input_{index}", (), {}) for index in range(len(inputs))
    ]
    track_tensor_tree(list(inputs), placeholders, constant=None, tracer=tracer)
    with (
        fake_mode,
        fx_traceback.preserve_node_meta(),
        disable_autocast_cache(),
        _inline_mutable_operators(),
        _plain_effects(),
        ProxyTorchDispatchMode(tracer, "real"),
    ):
        outputs = function(*inputs)
    proxies = pytree.tree_map(tracer.unwrap_proxy, tuple(outputs))
    tracer.create_node("output", "output", (tracer.create_arg(proxies),), {})
    return graph_module(tracer.root, tracer.graph)


@contextlib.contextmanager
def _inline_mutable_operators() -> Iterator[None]:
    """Record a custom operator that writes its arguments as clones and a call that writes them.

    By default it would become a higher-order operator, which is no operator of the dispatcher.
    """
    operator = getattr(auto_functionalize, "auto_functionalized_v2", None)
    dense = getattr(auto_functionalize, "auto_functionalized_v2_dense", None)
    table = getattr(operator, "python_key_table", None)
    if dense is None or table is None:
        yield
        return

    def inline(mode: Any, mutable_operator: Any, **kwargs: Any) -> Any:
        with mode:
            return dense(mutable_operator, **kwargs)

    with replaced_items(table, {ProxyTorchDispatchMode: inline}):
        yield


@contextlib.contextmanager
def _plain_effects() -> Iterator[None]:
    """Record operators with effects (checks, prints) as plain calls.

    Their order is that of the graph, which keeps every call without a result; the tokens that would
    otherwise be threaded through them need a higher-order operator.
    """
    if not hasattr(effects, "has_effects"):
        yield
        return
    with replaced_attribute(effects, "has_effects", lambda *_: False):
        yield
