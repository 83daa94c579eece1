# SPDX-License-Identifier: Apache-2.0
"""Where a result is another in a trace than in eager mode: corrected, or refused."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils._pytree import tree_leaves

from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = ["correct_result_types", "refuse_other_result_types"]

aten = torch.ops.aten

# Results that have the dtype of an argument: {result: arguments}, the first that is a tensor.
# The fake statistics of norms have that of the operand, the real ones that of the parameters; the
# fake running statistics of the functional batch norms are float32 in half precision, and so is the
# gradient of a group norm whose parameters are.
_OF_BATCH = (1, 2, 3, 4, 0)
_TYPED_AS: dict[Any, dict[int, tuple[int, ...]]] = {
    aten._batch_norm_with_update_functional.default: {
        1: _OF_BATCH,
        2: _OF_BATCH,
        4: (3,),
        5: (4,),
    },
    aten._native_batch_norm_legit.no_stats: {1: (1, 2, 0), 2: (1, 2, 0)},
    aten._native_batch_norm_legit_functional.default: {
        1: _OF_BATCH,
        2: _OF_BATCH,
        3: (3,),
        4: (4,),
    },
    aten._native_batch_norm_legit_no_training.default: {1: _OF_BATCH, 2: _OF_BATCH},
    aten.native_group_norm.default: {1: (1, 2, 0), 2: (1, 2, 0)},
    aten.native_group_norm_backward.default: {0: (1,)},
    aten.native_layer_norm.default: {1: (2, 3, 0), 2: (2, 3, 0)},
}
# Fake tensors know the types of those on CUDA.
_STATISTICS: dict[Any, tuple[int, ...]] = {
    aten._batch_norm_with_update_functional.default: (1, 2),
    aten._native_batch_norm_legit.no_stats: (1, 2),
    aten._native_batch_norm_legit_functional.default: (1, 2),
    aten._native_batch_norm_legit_no_training.default: (1, 2),
    aten.native_layer_norm.default: (1, 2),
}
# The state of the random numbers that attention drew: fake tensors have it where the operands are.
_ON_THE_HOST: dict[Any, tuple[int, ...]] = {
    aten._efficient_attention_forward.default: (2, 3),
    aten._scaled_dot_product_efficient_attention.default: (2, 3),
}

_BAGS = (aten._embedding_bag.default, aten._embedding_bag_forward_only.default)


def correct_result_types(graph: torch.fx.Graph) -> None:
    """Give the nodes of a traced graph the dtypes and sizes that their operators return."""
    for node in graph.nodes:
        for result, arguments in _TYPED_AS.get(node.target, {}).items():
            if result in _STATISTICS.get(node.target, ()) and node.args[0].meta["val"].is_cuda:
                continue
            given = [node.args[argument] for argument in arguments]
            model = next(x.meta["val"] for x in given if isinstance(x, torch.fx.Node))
            value = node.meta["val"][result]
            if value is not None:  # else a gradient that a mask turned off
                _replace_result(node, result, value.to(model.dtype))
        for result in _ON_THE_HOST.get(node.target, ()):
            state = node.meta["val"][result]
            _replace_result(node, result, state.new_empty(state.shape, device="cpu"))
        if node.target in _BAGS and _keeps_no_places(node):
            _replace_result(node, 1, node.meta["val"][1].new_empty(0))


def _keeps_no_places(bags: torch.fx.Node) -> bool:
    """Whether sums leave out which bag an index is in, which fake ones of bfloat16 do not know."""
    names = [argument.name for argument in bags.target._schema.arguments]  # type: ignore[union-attr]
    given = dict(zip(names, bags.args, strict=False)) | bags.kwargs
    weight = given["weight"].meta["val"]
    scale = given.get("per_sample_weights")
    return bool(
        weight.dtype is torch.bfloat16
        and weight.device.type == "cpu"
        and given.get("mode", 0) == 0
        and given.get("padding_idx", -1) < 0
        and weight.stride(1) == 1
        and (scale is None or scale.meta["val"].stride(0) == 1)
    )


def _replace_result(node: torch.fx.Node, result: int, value: torch.Tensor) -> None:
    """Make `value` what a result of an operator with several looks like."""
    values = list(node.meta["val"])
    values[result] = value
    node.meta["val"] = tuple(values)
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == result:
            _give(user, value)


def _give(node: torch.fx.Node, value: torch.Tensor) -> None:
    node.meta["val"] = value
    for user in node.users:
        if user.target is aten.detach.default:
            _give(user, value)


def refuse_other_result_types(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise CaptureError where an operand `out` has another dtype than the result it is for.

    Eager raises, computes in the dtype of `out`, or converts: each operator does what it likes. A
    functional trace always converts.
    """
    names = [argument.name for argument in func._schema.arguments if argument.is_out]
    if not names:
        return
    functional = _without_out(func)
    if functional is None:  # it makes a tensor of the dtype of `out`
        return
    given = [x for name in names for x in tree_leaves(kwargs.get(name))]
    others = {name: value for name, value in kwargs.items() if name not in names}
    for value in tree_leaves((args, others)):
        if isinstance(value, FunctionalTensor):
            torch._sync(value)  # else views are made unseen, and are no part of the trace
    with disable_proxy_modes_tracing():
        made = tree_leaves(functional(*args, **others))
    expected, found = ([x.dtype for x in tensors] for tensors in (made, given))
    if expected != found:
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            f"{func} has results of {_names(expected)}, and is given {_names(found)} for them",
            hint="give it tensors of these types, and convert afterwards",
        )


@functools.cache
def _without_out(func: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """Return the overload that takes the other arguments and makes its results itself."""

    def signature(schema: Any) -> list[tuple[str, str]]:
        return [(x.name, str(x.type)) for x in schema.arguments if not x.is_out]

    packet = func.overloadpacket
    overloads: list[torch._ops.OpOverload] = [getattr(packet, x) for x in packet.overloads()]
    for overload in overloads:
        schema = overload._schema
        if not schema.is_mutable and signature(schema) == signature(func._schema):
            return overload
    return None


def _names(dtypes: Sequence[torch.dtype]) -> str:
    return " and ".join(str(dtype) for dtype in dtypes)
