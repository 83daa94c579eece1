# SPDX-License-Identifier: Apache-2.0
"""What NumPy computes in code that Dynamo follows: NumPy computes it itself.

Dynamo would have PyTorch's own NumPy do it, of other types (arrays without dims are numbers in
NumPy) and other last bits. What is the same by any NumPy stays: elements that are picked, or cast,
and numbers that are made of known ones and then used with tensors, such as `np.sqrt(2.0)`.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._dynamo import utils
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import ConstantVariable, builder
from torch._dynamo.variables.tensor import NumpyNdarrayVariable

from hostjit.capturing.dynamic_dims import is_number, refusal
from hostjit.capturing.errors import CaptureError, CaptureFailure

__all__ = [
    "NumbersOfNumpy",
    "begins_with_numpy",
    "is_of_numpy",
    "stopping_at_numpy",
    "stops_at_numpy",
]

_WRAPPERS = (
    utils.numpy_to_tensor_wrapper,
    utils.numpy_method_wrapper,
    utils.numpy_operator_wrapper,
)
_SAYS = "NumPy computes "
_NUMBER = "hostjit_number_of_numpy"


class NumbersOfNumpy:
    """Puts numbers that NumPy makes of known ones into a graph of Dynamo's."""

    def __init__(self, *, kept_out: bool) -> None:
        self.kept_out = kept_out

    def put_into(self, graph: torch.fx.Graph) -> bool:
        """Replace the nodes that make them; tell whether all are used with tensors alone."""
        made = [node for node in graph.nodes if _NUMBER in node.meta]
        if not all(_is_of_numpy_or_scales(user) for node in made for user in node.users):
            return False
        for node in reversed(made):
            if node.op != "placeholder":
                node.replace_all_uses_with(node.meta[_NUMBER].item())
                graph.erase_node(node)
        return True


@contextlib.contextmanager
def stopping_at_numpy(numbers: NumbersOfNumpy | None = None) -> Iterator[None]:
    """Have Dynamo stop where NumPy computes, in this thread.

    Args:
        numbers: has what NumPy makes of known numbers put into the graph.
    """
    owner = threading.get_ident()
    original = builder.wrap_fx_proxy_cls

    def wrap(target_cls: Any, tx: Any, proxy: Any, *args: Any, **kwargs: Any) -> Any:
        node = proxy.node
        if threading.get_ident() != owner:
            return original(target_cls, tx, proxy, *args, **kwargs)
        if node.op == "placeholder" and target_cls is NumpyNdarrayVariable:
            return _wrap_read(original(target_cls, tx, proxy, *args, **kwargs), node, numbers)
        if not is_of_numpy(node):
            return original(target_cls, tx, proxy, *args, **kwargs)
        if any(is_number(x.meta.get("example_value")) for x in node.all_input_nodes):
            raise refusal(_SAYS + _name_of(node))
        if all(_NUMBER in x.meta for x in node.all_input_nodes):
            item = _item_of(node)
            if item is not None:
                node.graph.erase_node(node)
                return item
            value = None if numbers is None or numbers.kept_out else _number_of(node)
            if value is None:
                _stop(node)
            made = original(target_cls, tx, proxy, *args, **kwargs)
            node.meta[_NUMBER] = value
            return made
        if not _may_be_exact(node):
            _stop(node)
        made = original(target_cls, tx, proxy, *args, **kwargs)
        if not _is_exact(node):
            _stop(node)
        return made

    with mock.patch.object(builder, "wrap_fx_proxy_cls", wrap):
        yield


def stops_at_numpy(error: CaptureError) -> bool:
    """Tell whether a capture stopped where NumPy computes."""
    return error.failure is CaptureFailure.GRAPH_BREAK and _SAYS in error.what


def begins_with_numpy(module: torch.fx.GraphModule | None, broke: CaptureError | None) -> bool:
    """Tell whether a capture stopped where NumPy computes, before PyTorch has computed anything."""
    if broke is None or not stops_at_numpy(broke):
        return False
    nodes = module.graph.nodes if module is not None else ()
    computed = [node for node in nodes if node.op.startswith("call") and not is_of_numpy(node)]
    # `numpy()` is a view of a tensor in Dynamo's graph.
    return all(node.op == "call_method" and node.target == "view_as" for node in computed)


def is_of_numpy(node: torch.fx.Node) -> bool:
    """Tell whether a node of Dynamo's graph is computed by PyTorch's own NumPy."""
    return isinstance(node.target, _WRAPPERS) or node.target is utils.numpy_attr_wrapper


def _wrap_read(made: Any, node: torch.fx.Node, numbers: NumbersOfNumpy | None) -> Any:
    """Return what stands for an array that is read, unless it is a number that is kept out."""
    value = node.meta["example_value"]
    if value.dim() == 0:
        if numbers is not None and numbers.kept_out:
            _stop(node)
        node.meta[_NUMBER] = None
    return made


def _stop(node: torch.fx.Node) -> None:
    unimplemented(
        gb_type="NumPy computes",
        context=str(node.target),
        explanation=_SAYS + _name_of(node),
        hints=[],
    )


def _name_of(node: torch.fx.Node) -> str:
    target: Any = node.target
    if node.op == "placeholder":
        return "with a number of its own"
    if target is utils.numpy_attr_wrapper:
        return str(node.args[1])
    return str(target.__name__).removeprefix("wrapped_")


def _item_of(node: torch.fx.Node) -> ConstantVariable | None:
    """Return the Python number that a number of NumPy's is asked for, None if it is not."""
    target: Any = node.target
    if not isinstance(target, utils.numpy_method_wrapper) or target.method != "item":
        return None
    (value,) = [x.meta[_NUMBER] for x in node.all_input_nodes] or (None,)
    return None if value is None or len(node.args) > 1 else ConstantVariable(value.item())


def _number_of(node: torch.fx.Node) -> Any:
    """Return the number that NumPy makes of known ones, if it is finite."""
    numpy = sys.modules.get("numpy")
    target: Any = node.target
    if numpy is None or isinstance(target, utils.numpy_method_wrapper) or node.kwargs:
        return None
    compute: Any
    if isinstance(target, utils.numpy_operator_wrapper):
        compute = target.op
    elif isinstance(target, utils.numpy_to_tensor_wrapper):
        compute = getattr(numpy, target.f.__name__, None)
    else:
        return None
    kinds = numpy.float32, numpy.float64, numpy.int64
    args = [x.meta[_NUMBER] if isinstance(x, torch.fx.Node) else x for x in node.args]
    known = [y for x in args for y in (x if isinstance(x, (tuple, list)) else (x,))]
    if compute is None or not all(type(x) in (int, float, *kinds) for x in known):
        return None
    with numpy.errstate(all="ignore"):
        found = compute(*args)
    return found if type(found) in kinds and math.isfinite(found) else None


def _is_of_numpy_or_scales(user: torch.fx.Node) -> bool:
    """Tell whether a node gives what it gives with a Python number, of another tensor's dtype."""
    if _NUMBER in user.meta:
        return True
    result = user.meta.get("example_value")
    if user.op not in ("call_function", "call_method") or is_of_numpy(user):
        return False
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return False
    tensors = [x.meta.get("example_value") for x in user.all_input_nodes if _NUMBER not in x.meta]
    return any(isinstance(x, torch.Tensor) and x.dtype is result.dtype for x in tensors)


def _may_be_exact(node: torch.fx.Node) -> bool:
    target: Any = node.target
    if node.kwargs or len(node.all_input_nodes) != 1:
        return False
    if isinstance(target, utils.numpy_operator_wrapper):
        return target.op is operator.getitem and _is_plain_index(node.args[1])
    if isinstance(target, utils.numpy_method_wrapper):
        return target.method == "astype" or (target.method == "copy" and len(node.args) == 1)
    return False


def _is_exact(node: torch.fx.Node) -> bool:
    """Tell whether what may be the same by any NumPy is: elements that are picked, or cast."""
    result = node.meta.get("example_value")
    value = node.all_input_nodes[0].meta.get("example_value")
    if not isinstance(result, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    target: Any = node.target
    if isinstance(target, utils.numpy_operator_wrapper):
        return result.dim() > 0  # a single element would be a number of NumPy's
    if target.method == "astype":
        return result.is_floating_point() and not value.is_complex()
    return True


def _is_plain_index(index: Any) -> bool:
    if isinstance(index, tuple):
        return all(map(_is_plain_index, index))
    if isinstance(index, slice):
        return index.step is None or (type(index.step) is int and index.step > 0)
    return index is None or index is Ellipsis or type(index) is int
