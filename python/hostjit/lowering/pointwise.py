# SPDX-License-Identifier: Apache-2.0
"""From one ATen pointwise node to instructions of a kernel.

The rules are in `pointwise_rules`; this file holds what they are written with: arguments by name,
ATen's type promotion, and the test whether a node can be fused at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes
from torch.fx import Node

from hostjit.capturing.numbers.host_numbers import HostNumber
from hostjit.kernels import DType, KernelBuilder
from hostjit.kernels.sizes import Size, SymbolicSize
from hostjit.lowering.devices import device_of, is_number_of_the_host
from hostjit.lowering.number_values import number_value
from hostjit.lowering.registry import Registry
from hostjit.lowering.sizes import check_range, size_of

if TYPE_CHECKING:
    from hostjit.lowering.selection import Selection

__all__ = [
    "DTYPES",
    "PROMOTION",
    "NotFusableError",
    "Operand",
    "OperandReader",
    "PointwiseContext",
    "check_devices",
    "check_tensor",
    "creates",
    "dtype_of",
    "emit",
    "is_fusable",
    "named_arguments",
    "pointwise",
    "takes",
]

DTYPES: dict[torch.dtype, DType] = {
    torch.float64: DType.F64,
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.int64: DType.I64,
    torch.int32: DType.I32,
    torch.int16: DType.I16,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
}

Number = int | float | bool
# Of `torch.SymInt` and `HostNumber`, the value is only known at the call.
Operand = Node | Number | torch.SymInt | HostNumber


class NotFusableError(Exception):
    """A rule can't express this node, for the reason given; the node becomes an ATen call."""


class OperandReader(Protocol):
    """Gives rules the elements of tensors: whoever builds the kernel knows where they are."""

    def read(self, node: Node) -> int:
        """The kernel value of `node` at the current point, in its register type."""

    def position(self, node: Node) -> int:
        """The row-major position of the current point in the node being emitted."""

    def select(self, selection: Selection, places: Sequence[tuple[int, int]]) -> int:
        """An element of another tensor, with the places in those of its dimensions given."""


Rule = Callable[["PointwiseContext"], int]
pointwise: Registry[Rule] = Registry("pointwise rule")
# Rules for nodes that make a tensor of nothing: cheap to repeat where they are used.
creates: Registry[Rule] = Registry("creation rule")
# Rules for nodes that meet an operand elsewhere than at their own point; see `selection`.
takes: Registry[Rule] = Registry("taking rule")


class PointwiseContext:
    """What a rule sees of one node: its arguments and the kernel that it adds values to."""

    def __init__(self, node: Node, builder: KernelBuilder, reader: OperandReader) -> None:
        self.node = node
        self.builder = builder
        self.reader = reader
        self.arguments = named_arguments(node)

    def argument(self, name: str) -> Any:
        return self.arguments[name]

    def operand(self, name: str) -> Operand:
        """A tensor or a number argument."""
        value = self.arguments[name]
        if not isinstance(value, Node | int | float | torch.SymInt | HostNumber):
            raise NotFusableError(f"argument '{name}' is neither a tensor nor a real number")
        return value

    def number(self, name: str) -> Number:
        """An argument that is known now."""
        value = self.arguments[name]
        if not isinstance(value, int | float):
            raise NotFusableError(f"argument '{name}' is not a known number")
        return value

    def parameter(self, name: str) -> Number | HostNumber:
        """An argument that is a number, known now or at the call, but no size."""
        value = self.arguments[name]
        return value if isinstance(value, HostNumber) else self.number(name)

    def result_dtype(self) -> DType:
        return dtype_of(self.node)

    def value(self, operand: Operand, dtype: DType) -> int:
        """An operand as a kernel value of the register type of `dtype`."""
        if isinstance(operand, Node):
            return self.builder.cast(self.reader.read(operand), dtype.register)
        if isinstance(operand, torch.SymInt):
            check_range(operand)
            self.require(_always_holds(dtype, operand), f"{operand} may be no {dtype.value}")
            return self.builder.cast(self.builder.size(size_of(operand)), dtype.register)
        if isinstance(operand, HostNumber):
            return self.builder.cast(number_value(operand, self.builder), dtype.register)
        if dtype.is_integer and not _holds(dtype, operand):
            raise NotFusableError(f"{operand} is no {dtype.value}")
        return self.builder.constant(dtype.register, operand)

    def compute_dtype(
        self, operands: Sequence[Operand], kind: PROMOTION = PROMOTION.DEFAULT
    ) -> DType:
        """The type that eager computes in."""
        return self._promotion(operands, kind)[0]

    def promoted(
        self,
        operands: Sequence[Operand],
        kind: PROMOTION = PROMOTION.DEFAULT,
        *,
        exact_numbers: bool = False,
    ) -> list[int]:
        """The operands converted to the type that eager computes in.

        They are rounded to the promoted type before, which shows for the half types;
        `exact_numbers` keeps numbers, and tensors without dims on the CPU, as they are, as eager's
        kernels of products and quotients do: those for the CPU only the last operand.
        """
        compute, promoted = self._promotion(operands, kind)
        values = [self.value(operand, compute) for operand in operands]
        if promoted.register is not compute:
            return values

        def is_rounded(place: int, operand: Operand) -> bool:
            is_exact = exact_numbers and (place == len(operands) - 1 or self.on_cuda())
            if not isinstance(operand, Node):
                return is_exact
            return dtype_of(operand) is promoted or (is_exact and is_number_of_the_host(operand))

        return [
            value if is_rounded(place, operand) else self.builder.cast(value, promoted)
            for place, (operand, value) in enumerate(zip(operands, values, strict=True))
        ]

    def _promotion(self, operands: Sequence[Operand], kind: PROMOTION) -> tuple[DType, DType]:
        values = [o.meta["val"] if isinstance(o, Node) else o for o in operands]
        values = [1 if isinstance(value, torch.SymInt) else value for value in values]
        values = [1.0 if isinstance(value, HostNumber) else value for value in values]
        key = kind, torch.get_default_dtype(), *map(_kind_of, values)
        if key not in _PROMOTIONS:
            _PROMOTIONS[key] = elementwise_dtypes(*values, type_promotion_kind=kind)
        compute, promoted = _PROMOTIONS[key]
        return _supported(compute), _supported(promoted)

    def on_cuda(self) -> bool:
        """Whether eager would run a kernel of its own for CUDA, which may round otherwise."""
        device = device_of(self.node)
        return device is not None and device.type == "cuda"

    def require(self, condition: bool, reason: str) -> None:
        """Leave the node to ATen, with the reason, unless `condition` holds."""
        if not condition:
            raise NotFusableError(reason)

    def tensor_dtypes(self, *names: str) -> list[DType]:
        """The element types of those of the named arguments that are tensors."""
        operands = [self.operand(name) for name in names]
        return [dtype_of(operand) for operand in operands if isinstance(operand, Node)]

    def constant_like(self, value: int, number: Number | HostNumber | Size) -> int:
        """A number of the type of another value."""
        dtype = self.builder.dtype(value)
        if isinstance(number, HostNumber):
            self.require(dtype.is_float, f"{number} may be no {dtype.value}")
            return self.value(number, dtype)
        if isinstance(number, SymbolicSize):
            return self.builder.cast(self.builder.size(number), dtype)
        if dtype.is_integer and not _holds(dtype, number):
            raise NotFusableError(f"{number} is no {dtype.value}")
        return self.builder.constant(dtype, number)

    def apply(self, name: str, *operands: int) -> int:
        return self.builder.apply(name, *operands)


# What PyTorch's rules of promotion make of operands of these kinds.
_PROMOTIONS: dict[tuple[Any, ...], tuple[torch.dtype, torch.dtype]] = {}


def _kind_of(value: Any) -> Any:
    """What promotion looks at of an operand."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim() == 0
    return type(value)


def named_arguments(node: Node) -> dict[str, Any]:
    """The arguments of an operator node by name, with the schema's defaults filled in."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return {}
    named: dict[str, Any] = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(node.args) and not argument.kwarg_only:
            named[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            named[argument.name] = node.kwargs[argument.name]
        elif argument.has_default_value():
            named[argument.name] = argument.default_value
    return named


def dtype_of(node: Node) -> DType:
    """The element type of a node's tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise NotFusableError(f"'{node.name}' is no tensor")
    return _supported(value.dtype)


def emit(node: Node, builder: KernelBuilder, reader: OperandReader) -> int:
    """Add the instructions of `node` to a kernel.

    Arguments: a node with a rule, the kernel, and where operands come from.
    Returns: the value of the node's element, rounded to the node's dtype, in its register type.
    Raises NotFusableError if the node's arguments are outside what its rule covers.
    """
    rule = _rule_of(node)
    if rule is None:
        raise NotFusableError(f"{node.target} has no pointwise rule")
    context = PointwiseContext(node, builder, reader)
    try:
        return builder.cast(rule(context), dtype_of(node))
    except ValueError as error:
        # The kernel's operation is not defined for this type; neither is eager's.
        raise NotFusableError(str(error)) from error


class _Probe:
    """Reads operands into a kernel that is thrown away."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder = builder

    def read(self, node: Node) -> int:
        check_tensor(node)
        return self.builder.load(self.builder.input(dtype_of(node)), ())

    def position(self, node: Node) -> int:
        return self.builder.index(())

    def select(self, selection: Selection, places: Sequence[tuple[int, int]]) -> int:
        terms = tuple((place, 1) for place, _ in places)
        return self.builder.load(self.builder.input(dtype_of(selection.source)), (), 0, terms)


def is_fusable(node: Node) -> bool:
    """Whether a node can be part of a kernel: its rule is tried on a scratch kernel."""
    if _rule_of(node) is None:
        return False
    builder = KernelBuilder("probe", ())
    try:
        check_tensor(node)
        check_devices(node)
        emit(node, builder, _Probe(builder))
    except NotFusableError:
        return False
    return True


def _rule_of(node: Node) -> Rule | None:
    found = (registry.find(node.target) for registry in (pointwise, creates, takes))
    return next((rule for rule in found if rule), None)


def check_tensor(node: Node) -> None:
    """Raise NotFusableError unless a node is a plain tensor."""
    value = node.meta.get("val")
    dtype_of(node)
    tensor = cast(torch.Tensor, value)
    plain = tensor.layout is torch.strided and not tensor.is_neg()
    if not plain or tensor.device.type not in ("cpu", "cuda"):
        raise NotFusableError(f"'{node.name}' is no plain tensor of the CPU or a CUDA device")


def check_devices(node: Node) -> None:
    """Raise NotFusableError unless a node and its operands are on one device.

    Numbers on the CPU do not count: launches on other devices take them as scalars. Places among
    elements are left to operators, which may look at them on the host.
    """
    device = device_of(node)
    is_taking = takes.find(node.target) is not None
    for operand in node.all_input_nodes:
        if device_of(operand) == device:
            continue
        is_made = creates.find(operand.target) is not None and is_fusable(operand)
        if is_number_of_the_host(operand) and (is_made or not is_taking):
            check_tensor(operand)
        else:
            raise NotFusableError(f"'{operand.name}' is on another device than '{node.name}'")


def _supported(dtype: torch.dtype) -> DType:
    if dtype not in DTYPES:
        raise NotFusableError(f"kernels have no {dtype}")
    return DTYPES[dtype]


def _limits(dtype: DType) -> tuple[int, int]:
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low, (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1


def _holds(dtype: DType, number: Number) -> bool:
    low, high = _limits(dtype)
    return float(number).is_integer() and low <= number <= high


def _always_holds(dtype: DType, number: torch.SymInt) -> bool:
    """Whether a number that the call brings is one of a type; eager refuses others."""
    if not dtype.is_integer or dtype is DType.I64:
        return True
    low, high = _limits(dtype)
    bounds = number.node.shape_env.bound_sympy(number.node.expr)
    # No tensor has so many elements along a dim, though nobody says it.
    most = min(bounds.upper, (1 << 31) - 1)
    return bool(low <= bounds.lower and most <= high)
