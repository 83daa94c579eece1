# SPDX-License-Identifier: Apache-2.0
"""Floats among the inputs of a graph that AOTAutograd takes apart: Dynamo passes them as tensors.

A pass of PyTorch's gives operators the tensors in place of the numbers. It forgets what they are
called with by keyword, the `alpha` of sums and differences, and knows no number by keyword
(`x.add(y, alpha=rate)`). And where a number is a result, or
given to an operator that it does not know, Dynamo compiles the graph again for that value alone: up
to eight times for a number that a call changes, and then it runs eagerly. What Python computes of
such numbers is the same in float64, and so it is done there.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._functorch._aot_autograd import graph_compile
from torch._guards import detect_fake_mode
from torch._prims_common import get_computation_dtype
from torch.fx.passes import _tensorify_python_scalars as tensorify
from torch.fx.proxy import MetaProxy
from torch.utils._sympy.reference import TensorReferenceAnalysis

from hostjit.replacements import replaced_attribute

__all__ = ["floats_as_tensors"]

aten, prims = torch.ops.aten, torch.ops.prims


# What decides between two numbers.
_CHOICES = {torch.sym_max: aten.lt.Tensor, torch.sym_min: aten.gt.Tensor}
_COMPUTE: dict[Any, Any] = {
    operator.add: aten.add.Tensor,
    operator.sub: aten.sub.Tensor,
    operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor,
    operator.neg: aten.neg.default,
    **_CHOICES,
}


# The factors that operators have for the second operand, by keyword.
_FACTORS: dict[Any, str] = {
    aten.add.Tensor: "alpha",
    aten.sub.Tensor: "alpha",
    aten.addcmul.default: "value",
    aten.addcdiv.default: "value",
}
# What Python computes in floats, of ints as well.
_IN_FLOATS = (
    *("truediv", "reciprocal", "square", "pow", "exp", "log", "log2", "sqrt"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan"),
)


class _Proxy(MetaProxy):
    """Makes tensors of numbers that have their values."""

    @classmethod
    def __torch_function__(
        cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None
    ) -> MetaProxy:
        if orig_method is aten.scalar_tensor.default and not kwargs:
            is_int = isinstance(args[0].node.meta["val"], torch.SymInt)
            kwargs = {"dtype": torch.int64 if is_int else torch.float64}
        return super().__torch_function__(orig_method, types, args, kwargs)


def _in_floats(compute: Callable[..., Any]) -> Callable[..., Any]:
    def of_floats(*operands: MetaProxy) -> Any:
        return compute(*map(_as_float, operands))

    return of_floats


def _as_float(operand: MetaProxy) -> Any:
    if operand.node.meta["val"].dtype.is_floating_point:
        return operand
    return prims.convert_element_type.default(operand, torch.float64)


class _Analysis(TensorReferenceAnalysis):
    """What computes in tensors as Python does in numbers."""

    @staticmethod
    def python_mod(a: MetaProxy, b: MetaProxy) -> Any:
        return aten.remainder.Tensor(a, b)

    @staticmethod
    def mod(a: MetaProxy, b: MetaProxy) -> Any:
        return aten.fmod.Tensor(a, b)


for _name in _IN_FLOATS:
    setattr(_Analysis, _name, staticmethod(_in_floats(getattr(TensorReferenceAnalysis, _name))))


@contextlib.contextmanager
def floats_as_tensors() -> Iterator[None]:
    """Have that pass find tensors where it would not, and compute in them as Python does."""
    put_tensors = graph_compile._apply_tensorify_python_scalars

    def prepare_and_put_tensors(module: torch.fx.GraphModule) -> None:
        for node in list(module.graph.nodes):
            if node.target in (aten.add.Tensor, aten.sub.Tensor) and _is_float(node.args[1]):
                if "alpha" in node.kwargs:
                    _make_operand_a_tensor(node)
            elif node.target in _FACTORS and _is_float(node.kwargs.get(_FACTORS[node.target])):
                _multiply(node)
        numbers = _Numbers(module.graph)
        for node in list(module.graph.nodes):
            numbers.give_tensors(node)
        put_tensors(module)

    with (
        replaced_attribute(
            graph_compile, "_apply_tensorify_python_scalars", prepare_and_put_tensors
        ),
        replaced_attribute(tensorify, "MetaProxy", _Proxy),
        replaced_attribute(tensorify, "TensorReferenceAnalysis", _Analysis),
    ):
        yield


def _multiply(node: torch.fx.Node) -> None:
    """Multiply by the number that an operator is given by keyword, as it does: with one rounding.

    That is what `addcmul` of a tensor does, which has a factor of 1 then.
    """
    number, result = node.kwargs[_FACTORS[node.target]], node.meta["val"]
    dtype = get_computation_dtype(result.dtype)
    call = functools.partial(_call, node)

    def converted(operand: Any, dtype: torch.dtype = dtype) -> Any:
        is_other = isinstance(operand, torch.fx.Node) and operand.meta["val"].dtype is not dtype
        return call(prims.convert_element_type.default, operand, dtype) if is_other else operand

    with node.graph.inserting_before(node):
        first, second, *third = map(converted, node.args)
        factor = call(aten.mul.Tensor, _number(node), number)
        if not third:  # eager rounds it to a half type
            factor = converted(factor, result.dtype)
        factor = converted(factor)
        if node.target is aten.sub.Tensor:
            factor = call(aten.neg.default, factor)
        if not third:
            made = call(aten.addcmul.default, first, second, factor)
        elif node.target is aten.addcmul.default:
            product = call(aten.mul.Tensor, second, factor)
            made = call(aten.addcmul.default, first, product, *third)
        else:
            product = call(aten.mul.Tensor, second, factor)
            made = call(aten.add.Tensor, first, call(aten.div.Tensor, product, *third))
        made = converted(made, result.dtype)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


def _is_float(operand: Any) -> bool:
    return isinstance(operand, torch.fx.Node) and isinstance(
        operand.meta.get("val"), torch.SymFloat
    )


class _Numbers:
    """Makes tensors of float64 of the numbers that a graph computes."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._graph = graph
        self._made: dict[torch.fx.Node, torch.fx.Node] = {}

    def give_tensors(self, node: torch.fx.Node) -> None:
        """Have a result, or the weight of an interpolation, be the tensor, where it can be made."""
        if node.target is aten.scalar_tensor.default and _is_float(node.args[0]):
            is_double = node.meta["val"].dtype is torch.float64
            found = self._tensor(node.args[0]) if is_double else None
            if found is not None:
                node.replace_all_uses_with(found)
                self._graph.erase_node(node)
        elif node.target is aten.lerp.Scalar and _is_float(node.args[2]):
            result = node.meta["val"]
            is_exact = result.dtype in (torch.float32, torch.float64)
            weight = self._tensor(node.args[2]) if is_exact and _is_on_cpu(result) else None
            if weight is not None:
                with self._graph.inserting_before(node):
                    weight = _call(weight, prims.convert_element_type.default, weight, result.dtype)
                    made = _call(node, aten.lerp.Tensor, *node.args[:2], weight)
                node.replace_all_uses_with(made)
                self._graph.erase_node(node)

    def _tensor(self, operand: Any) -> torch.fx.Node | None:
        """Return the tensor of a number or of a node that gives one; None for what is not known."""
        if not isinstance(operand, torch.fx.Node) or operand in self._made:
            return self._made.get(operand)
        if operand.target is aten._local_scalar_dense.default:
            # The pass puts the tensor that it is read from there, and so knows of that.
            self._insert(
                operand, lambda: _call(operand, aten.mul.Tensor, _number(operand), operand)
            )
        elif operand.target in _COMPUTE and _is_float(operand):
            given = [self._tensor(x) if isinstance(x, torch.fx.Node) else x for x in operand.args]
            divides = operand.target is operator.truediv
            if any(x is None for x in given) or (divides and not _is_divisor(given[1])):
                return None

            def compute() -> torch.fx.Node:
                tensors = [
                    x if isinstance(x, torch.fx.Node) else _number(operand, x) for x in given
                ]
                made = _call(operand, _COMPUTE[operand.target], *tensors)
                # The first of them, unless Python finds the second to be more, or less.
                is_choice = operand.target in _CHOICES
                return _call(operand, aten.where.self, made, *tensors[::-1]) if is_choice else made

            self._insert(operand, compute)
        return self._made.get(operand)

    def _insert(self, number: torch.fx.Node, make: Callable[[], torch.fx.Node]) -> None:
        with self._graph.inserting_before(number.next):
            self._made[number] = make()


def _is_on_cpu(value: torch.Tensor) -> bool:
    return value.device.type == "cpu"


def _is_divisor(value: Any) -> bool:
    """Tell whether Python divides by a number for sure."""
    return isinstance(value, (int, float)) and value != 0


def _number(near: torch.fx.Node, value: Any = 1.0) -> torch.fx.Node:
    """Make a tensor without dims."""
    return _call(near, aten.full.default, [], float(value), dtype=torch.float64, device="cpu")


def _call(near: torch.fx.Node, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """Add a call to the graph, with the facts of a node but for its value."""
    made = near.graph.call_function(target, args, kwargs)
    values = torch.fx.node.map_arg((args, kwargs), lambda used: used.meta["val"])
    mode = detect_fake_mode()
    assert mode is not None
    with mode:
        made.meta = {**near.meta, "val": target(*values[0], **values[1])}
    return made


def _make_operand_a_tensor(node: torch.fx.Node) -> None:
    """Multiply the number by a tensor that is 1, of the type that the operator computes in."""
    left, number = node.args
    result = node.meta["val"]
    dtype = get_computation_dtype(result.dtype)

    call = functools.partial(_call, node)
    with node.graph.inserting_before(node):
        one = call(aten.full.default, [], 1.0, dtype=dtype, device=result.device)
        operand = call(aten.mul.Tensor, one, number)
        made = call(node.target, left, operand, **node.kwargs)
        if made.meta["val"].dtype is not result.dtype:
            made = call(prims.convert_element_type.default, made, result.dtype)
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)
