# SPDX-License-Identifier: Apache-2.0
"""What eager raises where an operator takes no operands of such dtypes, devices or sizes.

Fake tensors do not tell: most have one implementation for all dtypes, and what they raise may be
of another class. So the operator runs, on zeros of the sizes, strides and dtypes that it is given.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.utils import get_fake_values_from_nodes
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["Probe", "Probes"]

_PLAIN = (
    *(bool, int, float, complex, str, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_OPEN = (torch.SymInt, torch.SymFloat, torch.SymBool)
# Of PyTorch's functions, these change its state, or run code of the user's.
_OTHER_MODULES = ("torch._dynamo", "torch._functorch", "torch.distributed", "torch._higher_order")


@dataclasses.dataclass(frozen=True)
class Probe:
    """What came of it.

    Attributes:
        error: what the operator raised, None: nothing.
        is_open: sizes or numbers were open; those of the call were taken.
    """

    error: Exception | None
    is_open: bool


class Probes:
    """Those of one capture: operands of the same kind are tried once."""

    def __init__(self) -> None:
        self._known: dict[Any, Exception | None] = {}

    def of(self, node: Node, tx: Any) -> Probe | None:
        """Try the operator of a node that is about to be traced; None where that cannot be done."""
        if not _is_operator(node) or torch._C._functorch.peek_interpreter_stack() is not None:
            return None
        given: Any = get_fake_values_from_nodes(tx, (node.args, node.kwargs), True)
        leaves = tree_leaves(given)
        if not all(map(_can_be_given, leaves)) or not any(map(_is_tensor, leaves)):
            return None
        is_open = any(map(_is_open, leaves))
        try:
            key = (node.op, node.target, _state(), str(tree_map(_described, given)))
            if key not in self._known:
                self._known[key] = _error_of(node, *tree_map(_made, given))
        except Exception:  # there is no memory for them, or no number of a size
            return None
        return Probe(self._known[key], is_open)


def _is_operator(node: Node) -> bool:
    target: Any = node.target
    if node.op == "call_method":
        return True
    if node.op != "call_function" or isinstance(target, torch._ops.HigherOrderOperator):
        return False
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).startswith("aten.")
    if getattr(operator, getattr(target, "__name__", ""), None) is target:
        return True
    module = getattr(target, "__module__", None) or ""
    return module.split(".")[0] == "torch" and not module.startswith(_OTHER_MODULES)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _can_be_given(value: Any) -> bool:
    if isinstance(value, slice):
        return all(isinstance(end, (int, type(None))) for end in _ends(value))
    if not _is_tensor(value):
        return isinstance(value, (*_PLAIN, *_OPEN))
    return (
        isinstance(value, FakeTensor)
        and value.layout is torch.strided
        and value.device.type != "meta"
        and not (value.is_quantized or value.is_conj() or value.is_neg())
        and not (value.is_cuda and torch.cuda.is_current_stream_capturing())
    )


def _ends(value: slice) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


def _numbers(value: Any) -> Iterator[Any]:
    if _is_tensor(value):
        yield from (*value.shape, *value.stride())
    else:
        yield value


def _is_open(value: Any) -> bool:
    return any(isinstance(number, _OPEN) for number in _numbers(value))


def _known(value: Any) -> Any:
    """The value of a number in this call; raises where none is known."""
    if not isinstance(value, _OPEN):
        return value
    return value.node.require_hint()


def _described(value: Any) -> Any:
    if not _is_tensor(value):
        return repr(_known(value))
    sizes, strides = map(_known, value.shape), map(_known, value.stride())
    return (*sizes, *strides, value.dtype, value.device, value.requires_grad)


def _state() -> tuple[Any, ...]:
    devices = ("cpu", "cuda")
    autocast = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    return (*autocast, torch.are_deterministic_algorithms_enabled())


def _made(value: Any) -> Any:
    if not _is_tensor(value):
        return _known(value)
    sizes, strides = [*map(_known, value.shape)], [*map(_known, value.stride())]
    length = 1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        zeros = torch.zeros(0 if 0 in sizes else length, dtype=value.dtype, device=value.device)
        return zeros.as_strided(sizes, strides)


def _error_of(node: Node, args: Any, kwargs: Any) -> Exception | None:
    devices = [leaf.device for leaf in tree_leaves((args, kwargs)) if _is_tensor(leaf)]
    indices = {device.index for device in devices if device.type == "cuda"}
    with (
        _disable_current_modes(),
        torch._C.DisableTorchFunction(),
        torch.no_grad(),
        torch.random.fork_rng(devices=indices),
    ):
        target: Any = node.target
        if node.op == "call_method":
            target, args = getattr(args[0], target), args[1:]
        try:
            target(*args, **kwargs)
        except Exception as error:
            return error.with_traceback(None)
    return None
