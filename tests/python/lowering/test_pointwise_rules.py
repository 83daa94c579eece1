# SPDX-License-Identifier: Apache-2.0
"""Every overload with a rule against eager: values, type promotion, result types, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from mcjit import CompiledKernel
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

import hostjit
from hostjit.lowering.grouping import PointwiseGroup, schedule
from hostjit.lowering.pointwise import creates, pointwise

Tensor = torch.Tensor
F64, F32, F16, BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
BOOL = torch.bool
SAME = [(dtype,) * 3 for dtype in (F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL)]
MIXED = [
    *((F32, I64, F32), (BF16, F32, BF16), (F16, BF16, F32), (U8, I8, U8)),
    *((BOOL, F32, BOOL), (I32, BOOL, I32), (BF16, I64, I64)),
]
NUMBERS: list[Any] = [3, 0.1]
EXPONENTS: list[Any] = [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7, 5]

_VALUES = [0.0, 1.0, -3.0, 7.0, 2.5, -0.5, 100.0, -7.0, 3.0, 0.25, -2.0, 64.0]
_SPECIAL = [float("nan"), float("inf"), float("-inf"), -0.0]


def tensor(dtype: torch.dtype, position: int, *, special: bool) -> Tensor:
    """Twelve values; each argument has them in another order."""
    values = _VALUES[position:] + _VALUES[:position]
    if special and dtype.is_floating_point:
        values = [*_SPECIAL[: 4 - position], *values[4 - position :]]
    result = torch.tensor(values, dtype=F64)
    return (result.abs() if dtype is U8 else result).to(dtype).reshape(3, 4)


_OF_ONE_VALUE = ("aten.masked_fill.Tensor", "aten.fill.Tensor")


def overload_of(name: str) -> Any:
    namespace, operator, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload)


def arguments_of(name: str, dtypes: tuple[torch.dtype, ...]) -> Iterator[tuple[Any, ...]]:
    """Argument lists that fit the overload's schema."""
    choices: list[list[Any]] = []
    num_tensors = 0
    special = "gelu" not in name
    for argument in overload_of(name)._schema.arguments:
        kind = str(argument.type)
        if argument.kwarg_only:
            break
        if argument.name in ("mask", "condition"):
            choices.append([tensor(BOOL, 1, special=False)])
        elif argument.name == "value" and name in _OF_ONE_VALUE:
            choices.append([torch.tensor(2.0).to(dtypes[0])])
        elif "Tensor" in kind:
            choices.append([tensor(dtypes[num_tensors], num_tensors, special=special)])
            num_tensors += 1
        elif argument.name == "alpha":
            choices.append([1, 2])
        elif "pow" in name:
            choices.append(EXPONENTS)
        elif name == "prims.convert_element_type.default":
            choices.append([F32, I32, BF16, BOOL])
        elif argument.name == "approximate":
            choices.append(["none", "tanh"])
        elif argument.name == "rounding_mode":
            choices.append(["floor", "trunc"])
        elif kind in ("number", "Optional[number]"):
            choices.append(NUMBERS if num_tensors == 1 else [2, -1.5])
        elif argument.name == "size":
            choices.append([[3, 4]])
        else:
            break
    return itertools.product(*choices)


def keywords_of(name: str) -> list[dict[str, Any]]:
    names = {a.name for a in overload_of(name)._schema.arguments if a.kwarg_only}
    result: list[dict[str, Any]] = [{}]
    if "alpha" in names:
        result.append({"alpha": 2})
    if name == "aten.gelu.default":
        result = [{"approximate": "none"}, {"approximate": "tanh"}]
    if "rounding_mode" in names:
        result = [{"rounding_mode": mode} for mode in ("floor", "trunc", None)]
    if "value" in names:
        result.append({"value": 3})
    if "dtype" in names:
        result += [{"dtype": dtype} for dtype in (F64, BF16, BOOL)]
    return result


def check(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool | None:
    """Compare one call with eager; whether it was fused, None if fake tensors refuse the call."""
    target = overload_of(name)
    graph = Graph()
    mode = FakeTensorMode()
    nodes: list[Any] = []
    for number, argument in enumerate(arguments):
        if isinstance(argument, Tensor):
            node = graph.placeholder(f"x{number}")
            node.meta["val"] = mode.from_tensor(argument)
            nodes.append(node)
        else:
            nodes.append(argument)
    fakes = [node.meta["val"] if isinstance(node, Node) else node for node in nodes]
    try:
        with mode:
            fake = target(*fakes, **keywords)
    except Exception:
        return None
    node = graph.call_function(target, tuple(nodes), keywords)
    node.meta["val"] = fake
    graph.output(node)
    (item,) = schedule(graph)
    fused = isinstance(item, PointwiseGroup)
    where = f"{name} {arguments} {keywords}"
    try:
        expected = target(*arguments, **keywords)
    except (RuntimeError, TypeError):
        assert not fused, f"eager raises, but fused: {where}"
        return False
    if isinstance(item, PointwiseGroup):
        values = dict(zip(nodes, arguments, strict=True)) if item.inputs else {}
        actual = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
        CompiledKernel(item.kernel, optimise=False)(*(values[n] for n in item.inputs), actual)
        torch.testing.assert_close(actual, expected, equal_nan=True, msg=lambda m: f"{where}\n{m}")
    return fused


# Operators that only lowering has are not run eagerly.
OF_PYTORCH = [n for n in pointwise.names() + creates.names() if not n.startswith("hostjit.")]


@pytest.mark.parametrize("name", OF_PYTORCH)
def test_overload(name: str) -> None:
    try:
        overload_of(name)
    except AttributeError:
        pytest.skip("this version of torch has no such overload")
    num_fused = 0
    kinds = [str(argument.type) for argument in overload_of(name)._schema.arguments]
    combinations = {0: SAME[:1], 1: SAME}.get(kinds.count("Tensor"), SAME + MIXED)
    for dtypes in combinations:
        cases = list(itertools.product(arguments_of(name, dtypes), keywords_of(name)))
        for arguments, keywords in cases:
            num_fused += bool(check(name, arguments, keywords))
    assert num_fused > 0, f"{name} is never fused"


def test_what_is_refused() -> None:
    x, i = tensor(F32, 0, special=False), tensor(I64, 0, special=False)
    refused: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("aten.floor_divide.default", (i, i + 1000), {}),
        ("aten.remainder.Tensor", (i, i + 1000), {}),
        ("aten.pow.Tensor_Tensor", (i, i.abs()), {}),
        ("aten.mul.Tensor", (x.to(torch.complex64), x), {}),
        ("aten.add.Tensor", (tensor(U8, 0, special=False), 300), {}),
        ("aten.arange.start_step", (0.0, 1.0, 0.1), {}),
    ]
    for name, arguments, keywords in refused:
        assert check(name, arguments, keywords) is False, name


_TWO_OPERANDS: list[Any] = [
    *(torch.add, torch.sub, torch.mul, torch.div, torch.remainder, torch.maximum, torch.atan2),
    *(torch.fmod, torch.lt, torch.copysign),
    lambda x, y: torch.addcmul(x, x, y),
    lambda x, y: torch.where(x > 0, x, y),
]


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("other", [I64, I16, F32, F64], ids=str)
def test_operands_are_rounded_to_half_types_first(dtype: torch.dtype, other: torch.dtype) -> None:
    """Numbers of 12 bits: no half type has all of them. Floats without dims promote nothing."""

    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        return [operation(x, y) for operation in _TWO_OPERANDS]

    torch.manual_seed(0)
    x = torch.randn(64).mul(300).to(dtype)
    y = torch.randn(()) * 3000 if other.is_floating_point else torch.randint(-5000, 5000, (64,))
    y = y.to(other)
    torch.testing.assert_close(
        hostjit.compile(function)(x, y), function(x, y), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("count", [1, 64])
def test_a_number_before_the_operator_is_rounded_too(dtype: torch.dtype, count: int) -> None:
    """Eager's kernels keep it as it is behind the operator only."""
    numbers = [torch.tensor(number, dtype=F64) for number in (1000.3, 0.1, 2049.0, 1e10)]

    def exact(x: Tensor) -> list[Tensor]:
        found = [1000.3 / x]
        for number in numbers:
            found += [number * x, number / x, number % x]
            found.append(torch.div(number, x, rounding_mode="trunc"))
        return found

    def floor(x: Tensor) -> list[Tensor]:
        return [1e10 // x, *(number // x for number in numbers)]

    torch.manual_seed(0)
    x = (torch.rand(count) * 3 + 0.01).to(dtype)
    torch.testing.assert_close(hostjit.compile(exact)(x), exact(x), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(hostjit.compile(floor)(x), floor(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [F64, F32, F16, BF16], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, z: torch.add(x, y, alpha=0.3),
        lambda x, y, z: torch.sub(x, y, alpha=0.3),
        lambda x, y, z: torch.rsub(x, y, alpha=0.3),
        lambda x, y, z: torch.lerp(x, y, 0.3),
        lambda x, y, z: torch.lerp(x, y, 0.7),
        lambda x, y, z: torch.addcmul(x, y, z, value=0.3),
        lambda x, y, z: x.clone().addcmul_(y, z, value=0.3),
        lambda x, y, z: torch.addcdiv(x, y, z, value=0.3),
        lambda x, y, z: x.clone().addcdiv_(y, z, value=0.3),
        lambda x, y, z: x**3,
        lambda x, y, z: x**-2,
    ],
    ids=[
        *("add", "sub", "rsub", "lerp", "lerp_to_end"),
        *("addcmul", "addcmul_", "addcdiv", "addcdiv_", "pow", "inverse_square"),
    ],
)
def test_rounding_is_eagers(function: Any, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y, z = (torch.randn(512, generator=generator).to(dtype) for _ in range(3))
    assert torch.equal(hostjit.compile(function)(x, y, z), function(x, y, z))
