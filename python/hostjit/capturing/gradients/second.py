# SPDX-License-Identifier: Apache-2.0
"""Gradients that can be differentiated again: the program's operators, run by PyTorch."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
import torch._dynamo
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._pytree import tree_leaves

from hostjit.capturing.contexts import eager_graph
from hostjit.capturing.dynamic_dims import is_symbolic

__all__ = [
    "Again",
    "draws_as_before",
    "may_be_copied",
    "second_derivatives",
    "written_behind",
]

aten = torch.ops.aten

# In batched gradients.
_VMAP_MODE: Any = torch._C._parse_dispatch_key("VmapMode")

# In bytes: copied in some microseconds, by each call that may be differentiated.
_MAX_COPIED = 1 << 18

Tensors = Sequence[torch.Tensor | None]
Again = Callable[[Sequence[torch.Tensor], Tensors, torch.Tensor | None], Tensors]


def written_behind(graph: torch.fx.Graph, written: Collection[int]) -> list[frozenset[int]]:
    """Return, by result, which of the inputs that the graph writes it depends on as they were.

    Those of a batch norm do not depend on the statistics that it updates.

    Args:
        graph: the functional graph of a call, or of its backward pass besides.
        written: these inputs.
    """
    placeholders = graph.find_nodes(op="placeholder")
    behind = {placeholders[index]: frozenset([index]) for index in written}
    for node in graph.nodes:
        found = [behind[operand] for operand in _operands(node) if operand in behind]
        if found:
            behind[node] = frozenset().union(*found)
    results: Any = graph.output_node().args[0]
    return [behind.get(node, frozenset()) for node in results]


def may_be_copied(tensors: Sequence[Any]) -> bool:
    """Tell whether a call may copy what it writes, for second derivatives that few ask for.

    Args:
        tensors: those that it writes, real or fake.
    """
    if any(is_symbolic(x) or x.requires_grad or x.layout is not torch.strided for x in tensors):
        return False
    return sum(int(x.nbytes) for x in tensors) <= _MAX_COPIED


def _operands(node: torch.fx.Node) -> Sequence[torch.fx.Node]:
    """Return what a value is made of: of batch statistics, not of those that are updated."""
    if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
        given = [x for n, x in enumerate(node.args) if n not in (3, 4)]
        return [operand for operand in given if isinstance(operand, torch.fx.Node)]
    norm: Any = node.args[0] if node.target is operator.getitem else None
    if norm is None or norm.target is not aten._native_batch_norm_legit_functional.default:
        return node.all_input_nodes
    x, weight, bias, _, _, is_training = norm.args[:6]
    if is_training is not True or node.args[1] not in (0, 1, 2):
        return node.all_input_nodes
    return [operand for operand in (x, weight, bias) if isinstance(operand, torch.fx.Node)]


def draws_as_before(graph: torch.fx.Graph) -> bool:
    """Tell whether a graph draws the same when the default generator has the same state."""
    drawing = (
        node
        for node in graph.nodes
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    )
    return all(
        node.target.namespace == "aten" and all(map(_is_on_cpu, tree_leaves(node.meta.get("val"))))
        for node in drawing
    )


def _is_on_cpu(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.device.type == "cpu"


@contextlib.contextmanager
def _drawing_from(state: torch.Tensor | None) -> Iterator[None]:
    """Have the default generator go on from a state, and then from where it was.

    Outside of `vmap`, of `torch.func` and of batched gradients, where drawing is an error.
    """
    if state is None:
        yield
        return
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        with temporarily_clear_interpreter_stack(), _outside_of_vmap_mode():
            yield
    finally:
        torch.set_rng_state(before)


def _outside_of_vmap_mode() -> contextlib.AbstractContextManager[Any]:
    guard: Any = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_VMAP_MODE))
    return guard  # type: ignore[no-any-return]


def _apart(value: Any, *, is_copied: bool) -> Any:
    """Return an input as one that no other is made of, as far as gradients tell."""
    if is_copied:
        return value.clone()
    needs_gradient = isinstance(value, torch.Tensor) and value.requires_grad
    return value.view_as(value) if needs_gradient else value


def second_derivatives(
    module: torch.fx.GraphModule, tangent_results: Sequence[int], written: Collection[int] = ()
) -> Again:
    """Return what computes the gradients of a call's inputs, with a graph in grad mode.

    It takes the inputs, the gradients of results, and the state of the default generator when the
    call began, None where it draws nothing. The caller sees to it that the graph may be run a
    second time: it draws from no other generator, and of the inputs that it writes those on which
    a result or a gradient depends are given as they were before the call.

    Args:
        module: Dynamo's graph of the call; autocast is to be as it was in the call.
        tangent_results: the results of `module` that have a gradient, in the order in which their
            gradients are given.
        written: the inputs that it writes; what is run again writes copies.
    """
    count = sum(node.op == "placeholder" for node in module.graph.nodes)
    autocast: dict[str, Any] = {
        "enabled": torch.is_autocast_enabled("cpu"),
        "dtype": torch.get_autocast_dtype("cpu"),
    }

    run = eager_graph(module)

    def gradients(
        inputs: Sequence[torch.Tensor], tangents: Tensors, state: torch.Tensor | None
    ) -> Tensors:
        with torch.enable_grad():
            inputs = [_apart(x, is_copied=n in written) for n, x in enumerate(inputs)]
        with _drawing_from(state), torch.enable_grad(), torch.autocast("cpu", **autocast):
            results = run(*inputs[:count])
        pairs = [
            (results[index], tangent)
            for index, tangent in zip(tangent_results, tangents, strict=True)
            if tangent is not None
        ]
        tensors = [n for n, value in enumerate(inputs[:count]) if isinstance(value, torch.Tensor)]
        wanted = [index for index in tensors if inputs[index].requires_grad]
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            [inputs[index] for index in wanted],
            [tangent for _, tangent in pairs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        by_input = dict(zip(wanted, found, strict=True))
        return [by_input.get(index) for index in range(len(inputs))]

    unseen: Again = torch._dynamo.disable(gradients)
    return unseen
