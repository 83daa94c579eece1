# SPDX-License-Identifier: Apache-2.0
"""Gradients that AOTAutograd computes and that can be differentiated again.

Its backward pass has no derivative. A second one is an error where it is asked of all that a result
depends on; `torch.autograd.grad(..., create_graph=True)` and then `grad` of some inputs leave out
what would come through the backward pass, without a word, for any backend of torch.compile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType

from hostjit.capturing.second import second_derivatives
from hostjit.capturing.tracing import is_random

__all__ = ["SecondBackward"]

_Gradients = Sequence[torch.Tensor | None]
# Whether the graph is kept after this backward pass; torch 2.11 does not say.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class SecondBackward:
    """Lets the gradients of one graph of Dynamo's be differentiated, or makes that an error.

    With a graph of their own they are computed by PyTorch's operators, anew from the inputs.
    """

    def __init__(self, module: torch.fx.GraphModule, name: str) -> None:
        self._module = module
        self._name = name
        self._is_random = False

    def note_joint(self, graph: torch.fx.Graph) -> None:
        """Look at the graph of both passes."""
        self._is_random = is_random(graph)

    @contextlib.contextmanager
    def of_what_is_compiled(self) -> Iterator[None]:
        """Give a backward pass of its own to the autograd.Function that is made meanwhile."""
        before = set(torch.autograd.Function.__subclasses__())
        yield
        for kind in torch.autograd.Function.__subclasses__():
            if kind not in before and hasattr(kind, "compiled_fw"):
                self._extend(kind)

    def _extend(self, kind: Any) -> None:
        forward, backward = kind.forward, kind.backward
        again = self._again(kind.metadata)
        name = self._name

        def keep_inputs(ctx: Any, *given: Any) -> Any:
            ctx.hostjit_inputs, ctx.hostjit_versions = given, _versions(given)
            return forward(ctx, *given)

        def differentiable_backward(ctx: Any, *tangents: Any) -> Any:
            if torch.is_grad_enabled():
                inputs = ctx.hostjit_inputs
                if inputs is None:
                    raise RuntimeError(f"hostjit: the graph of '{name}' has been freed")
                if again is not None and _versions(inputs) == ctx.hostjit_versions:
                    return tuple(again(inputs, tangents[0] if _is_boxed(kind) else tangents))
                with torch.no_grad():
                    gradients = backward(ctx, *tangents)
                return _Underivable.apply(name, gradients, *inputs)  # type: ignore[no-untyped-call]
            if not _keeps_graph():
                ctx.hostjit_inputs = None
            return backward(ctx, *tangents)

        kind.forward = staticmethod(keep_inputs)
        kind.backward = staticmethod(differentiable_backward)

    def _again(self, metadata: Any) -> Callable[[Sequence[Any], _Gradients], _Gradients] | None:
        """Return what computes the gradients with a graph; None where the forward has effects."""
        changes = any(info.mutates_data or info.mutates_metadata for info in metadata.input_info)
        results = metadata.output_info
        if self._is_random or changes or metadata.num_intermediate_bases:
            return None
        if any(info.output_type is not OutputType.non_alias for info in results):
            return None
        wanted = [index for index, info in enumerate(results) if info.requires_grad]
        compute = second_derivatives(self._module, wanted)

        def gradients(inputs: Sequence[Any], tangents: _Gradients) -> _Gradients:
            return compute(inputs, [tangents[index] for index in wanted])

        return gradients


class _Underivable(torch.autograd.Function):
    """Gradients as they are, of which another derivative is an error."""

    @staticmethod
    def forward(ctx: Any, name: str, gradients: Sequence[Any], *inputs: Any) -> Any:
        ctx.name = name
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            f"hostjit: second derivatives of '{ctx.name}' are not possible: its forward draws "
            "random numbers, changes tensors or returns views, or an input was changed since. Call "
            "the original function where you need them"
        )


def _is_boxed(kind: Any) -> bool:
    return getattr(kind, "boxed_grads_call", False)


def _versions(inputs: Sequence[Any]) -> list[int]:
    return [x._version for x in inputs if isinstance(x, torch.Tensor) and not x.is_inference()]
