# SPDX-License-Identifier: Apache-2.0
"""The rules of small products: of matrices on CUDA devices, of vectors on CPUs as well.

They are products of elements, summed along rows. A library's product costs its host more time than
a device needs for a small one. As a reduction it is a launch among others, and one with what its
result goes through, or with its like. A CPU's products of matrices have nodes of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from torch import Tensor
from torch.fx import Node

from hostjit.kernels.sizes import Size, at_most
from hostjit.lowering.devices import device_of
from hostjit.lowering.iteration_space import Steps
from hostjit.lowering.pointwise import NotFusableError, dtype_of, named_arguments
from hostjit.lowering.reductions import ReductionContext, Rows, reduces
from hostjit.lowering.sizes import shape_of

# Multiplications that take a device no longer than a library's product takes the host.
_MOST_MULTIPLICATIONS = 1 << 23
# Those that a thread of a CPU does before a library's product has begun to.
_MOST_ON_CPU = 1 << 15
# Elements of a row that a block sums up no later than a library's product starts.
_LONGEST_SUM = 1 << 14


@dataclass(frozen=True)
class _Form:
    """The dimensions of a product's operands, as einsum writes them; "*" is any number of them.

    The points of a product are the dimensions of its result, then "k", along which it is summed.
    """

    lhs: tuple[str, str]
    rhs: tuple[str, str]
    result: str
    addend: str | None = None


_MATRICES = _Form(("self", "mk"), ("mat2", "kn"), "mn")
_FORMS = {
    "aten.mm.default": _MATRICES,
    "aten.addmm.default": _Form(("mat1", "mk"), ("mat2", "kn"), "mn", "self"),
    "aten.bmm.default": _Form(("self", "bmk"), ("mat2", "bkn"), "bmn"),
    "aten.baddbmm.default": _Form(("batch1", "bmk"), ("batch2", "bkn"), "bmn", "self"),
    "aten.mv.default": _Form(("self", "mk"), ("vec", "k"), "m"),
    "aten.addmv.default": _Form(("mat", "mk"), ("vec", "k"), "m", "self"),
    "aten.dot.default": _Form(("self", "k"), ("tensor", "k"), ""),
    "aten.linear.default": _Form(("input", "*k"), ("weight", "nk"), "*n", "bias"),
}
# They have no nodes on a CPU.
_OF_VECTORS = frozenset({"aten.mv.default", "aten.addmv.default", "aten.dot.default"})


@dataclass(frozen=True)
class _Product:
    """The points of a product, and for each operand which of their dimensions its own are."""

    shape: tuple[Size, ...]
    dims: dict[Node, tuple[int, ...]]
    factors: tuple[Node, Node]
    addend: Node | None


def _product_of(node: Node) -> _Product:
    """Raises NotFusableError where an operand is there twice, or is no tensor of its form."""
    form, arguments = _FORMS[str(node.target)], named_arguments(node)
    operands = [arguments[name] for name, _ in (form.lhs, form.rhs)]
    addend = arguments[form.addend] if form.addend else None
    operands += [] if addend is None else [addend]
    for operand in operands:
        if not isinstance(operand, Node) or not isinstance(operand.meta["val"], Tensor):
            raise NotFusableError("an operand is no tensor")
    batch = ascii_uppercase[: operands[0].meta["val"].dim() - 1]
    texts = [text.replace("*", batch) for text in (form.lhs[1], form.rhs[1], form.result)]
    points = f"{texts[2]}k"
    if addend is not None:
        rank = addend.meta["val"].dim()
        texts[2] = texts[2][len(texts[2]) - rank :]
    dims: dict[Node, tuple[int, ...]] = {}
    for operand, text in zip(operands, texts, strict=False):
        if len(text) != operand.meta["val"].dim():
            raise NotFusableError("an operand has other dimensions than most")
        own = tuple(points.index(letter) for letter in text)
        if dims.setdefault(operand, own) != own:
            raise NotFusableError("an operand is there twice, in two places")
    lhs, rhs = operands[:2]
    shape = (*shape_of(node.meta["val"]), shape_of(lhs.meta["val"])[-1])
    return _Product(shape, dims, (lhs, rhs), addend)


def _rows(node: Node) -> Rows:
    shape = _product_of(node).shape
    return Rows(shape, (*[True] * (len(shape) - 1), False))


def _strides(node: Node, operand: Node, strides: Sequence[Size]) -> Steps:
    product = _product_of(node)
    places: list[Size] = [0] * len(product.shape)
    sizes = shape_of(operand.meta["val"])
    for dim, size, stride in zip(product.dims[operand], sizes, strides, strict=True):
        places[dim] = 0 if size == 1 else stride
    return tuple(places)


def _is_small(product: _Product, *, on_cpu: bool) -> bool:
    """Whether a library's product would not be faster, its host's time included."""
    multiplications = math.prod(product.shape)
    sizes = (math.prod(shape_of(factor.meta["val"])) for factor in product.factors)
    elements = sum(sizes)
    if on_cpu:
        return isinstance(multiplications, int) and multiplications <= _MOST_ON_CPU
    if not isinstance(multiplications, int) or not isinstance(elements, int):
        return False
    if not at_most(product.shape[-1], _LONGEST_SUM):
        return False
    # Where each element is read about once, any kernel waits for memory.
    return multiplications <= max(_MOST_MULTIPLICATIONS, elements)


@reduces(*_FORMS, rows=_rows, strides=_strides)
def product(context: ReductionContext) -> int:
    """Sum in the registers' type; the addend joins before the only rounding."""
    node = context.node
    product = _product_of(node)
    device, dtype = device_of(node), dtype_of(node)
    on_cpu = device is not None and device.type == "cpu"
    is_cuda = device is not None and device.type == "cuda"
    has_node = on_cpu and str(node.target) not in _OF_VECTORS
    context.require((on_cpu or is_cuda) and not has_node, "the CPU's products have nodes")
    context.require(dtype.register.is_float, "a product of integers")
    is_uniform = all(dtype_of(operand) is dtype for operand in product.dims)
    context.require(is_uniform, "a product of several dtypes")
    context.require(_is_small(product, on_cpu=on_cpu), "a library's product is as fast")
    lhs, rhs = (context.value(factor, dtype) for factor in product.factors)
    total = context.reduce("sum", context.apply("mul", lhs, rhs))
    total = _scaled(context, total, "alpha")
    beta = context.arguments.get("beta", 1)
    if product.addend is None or beta == 0:
        return total
    addend = _scaled(context, context.value(product.addend, dtype), "beta")
    return context.apply("add", total, addend)


def _scaled(context: ReductionContext, value: int, name: str) -> int:
    """A value times a number of the node's; a library reads nothing that it multiplies by 0."""
    if context.arguments.get(name, 1) == 1:
        return value
    factor = context.number(name)
    context.require(factor != 0, "a product that is not computed")
    return context.apply("mul", value, context.constant_like(value, factor))
