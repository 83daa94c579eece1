# SPDX-License-Identifier: Apache-2.0
"""Numbers that an operator refuses, such as 1e300 for float32: fake tensors take any.

Nor do they mind an `alpha` of 1.0 between ints.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

from hostjit.capturing.control_flow.node_operators import with_regions
from hostjit.capturing.dynamic_dims import refusal
from hostjit.capturing.errors import CaptureError, CaptureFailure
from hostjit.capturing.numbers.float_bounds import assume_defined
from hostjit.capturing.numbers.open_numbers import OpenNumber
from hostjit.capturing.signal_errors import raise_of_handler

__all__ = ["check_numbers", "refuse_numbers"]

# What PyTorch's own checks of numbers say; a stand-in may raise for other reasons.
_ABOUT_NUMBERS = (
    *("without overflow", "with a bool tensor", "Boolean alpha"),
    "must not be a floating point number",
)


def refuse_numbers(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise CaptureError where eager raises for one of the numbers that an operator is given.

    Operators differ in what they take, so the operator itself is asked, with small
    tensors; only for a number that is outside of the range of a dtype, a bool or complex one, or a
    float that the products of ints are scaled by.
    """
    if func in _WITH_ANY_DIM:
        _refuse_dim(func, args[0], args[1])
    positions, names = _places(func)
    numbers = [args[position] for position in positions if position < len(args)]
    numbers += [kwargs[name] for name in names if name in kwargs]
    values = [*tree_leaves(args), *tree_leaves(kwargs)]
    if not (_is_suspicious(numbers, values) or _scales_ints(func, args, kwargs, values)):
        return
    with _disable_current_modes():
        try:
            func(*tree_map(_stand_in, args), **tree_map(_stand_in, kwargs))
        except Exception as error:
            raise_of_handler(error)
            if any(text in str(error) for text in _ABOUT_NUMBERS):
                raise CaptureError(
                    CaptureFailure.USER_EXCEPTION,
                    f"{func} raises: {error}",
                    hint="the call raises; run it eagerly to see the error",
                ) from error


def check_numbers(graph: torch.fx.Graph, numbers: Sequence[OpenNumber], environment: Any) -> None:
    """Raise CaptureError where a program for any value of these numbers would not do as eager does.

    What is assumed about them becomes a guard of the environment.

    Args:
        graph: functional, traced with the numbers open.
        numbers: those that it is given.
        environment: in which it was traced.
    """
    assume_defined(graph)
    ints = [n.symbol for n in numbers if n.type is int and not _is_narrow(n, environment)]
    _refuse_wide_numbers(graph, ints)


def _is_narrow(number: OpenNumber, environment: Any) -> bool:
    """Whether an open int has 31 bits."""
    bounds = environment.var_to_range.get(number.symbol)
    return bounds is None or bool(bounds.upper < 1 << 31 and bounds.lower > -(1 << 31))


def _refuse_wide_numbers(graph: torch.fx.Graph, symbols: Collection[Any]) -> None:
    """Raise CaptureError where an open int meets tensors of a type that may not hold it.

    Eager raises for some of its values, or computes with what is left of it.

    Args:
        graph: functional.
        symbols: of the open ints.
    """
    for node in with_regions(graph):
        values = [*node.args, *node.kwargs.values()] if node.op == "call_function" else []
        found = [v.meta.get("val") if isinstance(v, torch.fx.Node) else v for v in values]
        if not any(isinstance(value, torch.SymInt) and _is_wide(value, symbols) for value in found):
            continue
        tensors = [value for value in (*found, node.meta.get("val")) if torch.is_tensor(value)]
        if any(tensor.dtype not in _WIDE for tensor in tensors):
            raise refusal(f"{node.target} of a type of less than 32 bits takes a number of more")


def _is_wide(number: torch.SymInt, symbols: Collection[Any]) -> bool:
    if not number.node.expr.free_symbols & set(symbols):
        return False
    bounds = number.node.shape_env.bound_sympy(number.node.expr)
    return bool(bounds.upper > _INT32 or bounds.lower < -_INT32)


_INT32 = (1 << 31) - 1
_WIDE = (torch.int64, torch.float32, torch.float64, torch.bool, torch.complex64, torch.complex128)


# Their fake kernels do not look at the dim.
_WITH_ANY_DIM = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)


def _refuse_dim(func: torch._ops.OpOverload, operand: torch.Tensor, dim: int) -> None:
    rank = max(operand.dim(), 1)
    if not -rank <= dim < rank:
        raise CaptureError(
            CaptureFailure.USER_EXCEPTION,
            f"{func} raises: there is no dim {dim} of {rank}",
            hint="the call raises; run it eagerly to see the error",
        )


@functools.cache
def _places(func: torch._ops.OpOverload) -> tuple[list[int], list[str]]:
    """Where an operator takes numbers that take part in what it computes: positions and names.

    No place of what moves a generator, or may have effects that nobody knows.
    """
    if func.namespace != "aten" or torch.Tag.nondeterministic_seeded in func.tags:
        return [], []
    arguments = list(enumerate(func._schema.arguments))
    found = [(place, argument.name) for place, argument in arguments if _takes_number(argument)]
    return [place for place, _ in found], [name for _, name in found]


def _takes_number(argument: torch._C.Argument) -> bool:
    return str(argument.type).removeprefix("Optional[").removesuffix("]") in ("number", "Tensor")


def _is_suspicious(given: Sequence[Any], values: Sequence[Any]) -> bool:
    numbers = [value for value in given if type(value) in (bool, int, float, complex)]
    if not numbers:
        return False
    most = min(_greatest(values))
    return any(
        # A complex number has no order, and a bool is not in it.
        type(number) in (bool, complex) or most < abs(number) < float("inf")
        for number in numbers
    )


def _scales_ints(
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Sequence[Any],
) -> bool:
    """Whether a float is the factor of an operand, and no tensor has floats."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False))
    given.update(kwargs)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return any(type(given.get(name)) is float for name in _FACTORS) and not any(
        tensor.is_floating_point() or tensor.is_complex() for tensor in tensors
    )


_FACTORS = ("alpha", "beta")


def _greatest(values: Sequence[Any]) -> Iterator[float]:
    """The greatest numbers of the dtypes that an operator is given, or makes its result of."""
    yield torch.finfo(torch.get_default_dtype()).max
    for value in values:
        dtype = value.dtype if isinstance(value, torch.Tensor) else value
        if isinstance(dtype, torch.dtype) and dtype is not torch.bool:
            is_integer = not (dtype.is_floating_point or dtype.is_complex)
            yield (torch.iinfo if is_integer else torch.finfo)(dtype).max


def _stand_in(value: Any) -> Any:
    """Make a small tensor in place of one: some operators take any number for a single element."""
    if isinstance(value, torch.Tensor):
        sizes = [min(size, 2) if type(size) is int else 2 for size in value.shape]
        return torch.zeros(sizes, dtype=value.dtype, device="cpu")
    return torch.device("cpu") if isinstance(value, torch.device) else value
