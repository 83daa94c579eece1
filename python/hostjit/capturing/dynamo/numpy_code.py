# SPDX-License-Identifier: Apache-2.0
"""What NumPy computes in code that Dynamo follows: NumPy computes it itself.

Dynamo would have PyTorch's own NumPy do it, of other types (arrays without dims are numbers in
NumPy) and other last bits. What is the same by any NumPy stays: elements that are picked, or cast,
and numbers that are made of known or open ones and then used with tensors, such as `np.sqrt(2.0)`
and `np.sqrt(len(x))`. What operators between a tensor and an array give is NumPy's too: PyTorch
leaves them to the array.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dynamo import utils
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import ConstantVariable, builder
from torch._dynamo.variables.tensor import NumpyNdarrayVariable, SymNodeVariable

from hostjit.capturing.dynamic_dims import is_number, refusal
from hostjit.capturing.dynamo.source_values import value_at
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.numbers.numpy_functions import (
    NUMPY_FUNCTIONS,
    function_of_numpy,
    takes_all_of,
)
from hostjit.replacements import replaced_attribute

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
_OPEN = "hostjit_open_number_of_numpy"
_ARRAY = "hostjit_array_of_numpy"


class NumbersOfNumpy:
    """Puts numbers that NumPy makes of known ones into a graph of Dynamo's."""

    def __init__(self, *, kept_out: bool) -> None:
        self.kept_out = kept_out
        self._open: dict[str, Any] = {}

    def make_open(self, tx: Any, node: torch.fx.Node) -> Any:
        """Return the number that a node makes of others, some of them open; None if it can't be.

        Python numbers stand for NumPy's, but for those of single precision, with which NumPy
        computes otherwise.
        """
        found = function_of_numpy(node)
        if found is None or self.kept_out:
            return None
        given = self._all_of(tx, node.args) if takes_all_of(found[0]) else node.args
        if given is None:
            return None
        args = [_plain(x) if isinstance(x, torch.fx.Node) else x for x in given]
        if not all(type(x) in (int, float) or isinstance(x, torch.fx.Node) for x in args):
            return None
        operands = tuple(self._operand(tx, x) if isinstance(x, torch.fx.Node) else x for x in args)
        proxy = tx.output.create_proxy("call_function", found[1], operands, {})
        number: Any = SymNodeVariable.create(tx, proxy)
        self._open[node.name] = number
        node.args = tuple(given)
        node.meta[_OPEN] = found[1], number.sym_num
        is_single = found[0] == "float32"
        dtype = {int: "int64", float: "float32" if is_single else "float64"}[number.python_type()]
        return getattr(torch, dtype)

    def _all_of(self, tx: Any, args: tuple[Any, ...]) -> Sequence[Any] | None:
        """Return the numbers in the one argument, None if it is no sequence."""
        values = args[0] if len(args) == 1 else None
        if not isinstance(values, torch.fx.Node):
            return values if isinstance(values, (list, tuple)) else None
        sizes = values.meta.get("example_value")
        if not isinstance(sizes, torch.Size):
            return None
        of = torch.fx.Proxy(values, tx.output.current_tracer)

        def size(dim: int) -> torch.fx.Node:
            proxy = tx.output.create_proxy("call_function", operator.getitem, (of, dim), {})
            found: torch.fx.Node = SymNodeVariable.create(tx, proxy).as_proxy().node
            return found

        return [size(d) if is_number(found) else int(found) for d, found in enumerate(sizes)]

    def item(self, node: torch.fx.Node) -> Any:
        """Return the Python number that an open number of NumPy's is asked for."""
        return self._open[node.all_input_nodes[0].name]

    def _operand(self, tx: Any, node: torch.fx.Node) -> Any:
        if node.name in self._open:
            return self._open[node.name].as_proxy()
        return torch.fx.Proxy(node, tx.output.current_tracer)

    def put_into(self, graph: torch.fx.Graph) -> bool:
        """Replace the nodes that make them; tell whether all are used with tensors alone."""
        made = [node for node in graph.nodes if _OPEN in node.meta]
        made += [node for node in graph.nodes if _NUMBER in node.meta]
        if not all(_is_of_numpy_or_scales(user) for node in made for user in node.users):
            return False
        for node in made:
            if _OPEN in node.meta:
                function, number = node.meta[_OPEN]
                args = tuple(_plain(x) if isinstance(x, torch.fx.Node) else x for x in node.args)
                with graph.inserting_after(node):
                    by_python = graph.call_function(function, args)
                by_python.meta["example_value"] = number
                node.replace_all_uses_with(by_python)
                graph.erase_node(node)
        for node in reversed([node for node in made if _NUMBER in node.meta]):
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
            if isinstance(value_at(tx, kwargs["source"].base), sys.modules["numpy"].ndarray):
                node.meta[_ARRAY] = True
            return _wrap_read(original(target_cls, tx, proxy, *args, **kwargs), node, numbers)
        if not is_of_numpy(node):
            if _is_operator(node) and any(_ARRAY in x.meta for x in node.all_input_nodes):
                _stop(node)
            if target_cls is NumpyNdarrayVariable:
                node.meta[_ARRAY] = True
            return original(target_cls, tx, proxy, *args, **kwargs)
        if any(_is_open(x) for x in node.all_input_nodes):
            if numbers is not None and _is_item(node):
                item = numbers.item(node)
                node.graph.erase_node(node)
                return item
            dtype = None if numbers is None else numbers.make_open(tx, node)
            if dtype is None:
                raise refusal(_SAYS + _name_of(node))
            with tx.fake_mode:
                kwargs["example_value"] = torch.zeros((), dtype=dtype, device="cpu")
            return original(target_cls, tx, proxy, *args, **kwargs)
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
        node.meta[_ARRAY] = True
        return made

    with replaced_attribute(builder, "wrap_fx_proxy_cls", wrap):
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


def _is_operator(node: torch.fx.Node) -> bool:
    """Tell whether a node is one of Python's operators, but for indexing: that is the tensor's."""
    if node.op != "call_function" or node.target in (operator.getitem, operator.setitem):
        return False
    return getattr(node.target, "__module__", None) == operator.add.__module__


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
    if not _is_item(node):
        return None
    (value,) = [x.meta[_NUMBER] for x in node.all_input_nodes] or (None,)
    return None if value is None else ConstantVariable(value.item())


def _is_item(node: torch.fx.Node) -> bool:
    target: Any = node.target
    is_method = isinstance(target, utils.numpy_method_wrapper) and target.method == "item"
    return is_method and len(node.args) == 1


def _is_open(node: torch.fx.Node) -> bool:
    """Tell whether a node is a number that differs from call to call, maybe one of NumPy's."""
    value = node.meta.get("example_value")
    are_sizes = isinstance(value, torch.Size) and any(map(is_number, value))
    return _OPEN in node.meta or is_number(value) or are_sizes


def _plain(node: torch.fx.Node) -> Any:
    """Return what stands for a number that NumPy is given: one of Python's, or the node of one."""
    numpy = sys.modules["numpy"]
    if _NUMBER in node.meta:
        value = node.meta[_NUMBER]
        return value.item() if type(value) in (numpy.float64, numpy.int64) else None
    is_single = _OPEN in node.meta and node.meta[_OPEN][0] is NUMPY_FUNCTIONS["float32"]
    return None if is_single or not _is_open(node) else node


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
    if _NUMBER in user.meta or _OPEN in user.meta:
        return True
    result = user.meta.get("example_value")
    if user.op not in ("call_function", "call_method") or is_of_numpy(user):
        return False
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return False
    tensors = [x.meta.get("example_value") for x in user.all_input_nodes if not _is_made(x)]
    return any(isinstance(x, torch.Tensor) and x.dtype is result.dtype for x in tensors)


def _is_made(node: torch.fx.Node) -> bool:
    return _NUMBER in node.meta or _OPEN in node.meta


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
