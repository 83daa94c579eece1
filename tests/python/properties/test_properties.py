# SPDX-License-Identifier: Apache-2.0
"""Random programs on random tensors: jit, evaluator and eager agree.

For thousands of cases: pytest tests/python/properties --hypothesis-profile thousands
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import movement_statements
import pointwise_statements
import product_statements
import pytest
import reduction_statements
import torch
from agreement import check, check_at_any_size
from hypothesis import given, note, settings
from hypothesis import strategies as st
from operands import STYLES, Draw
from program import Program, Statement, UnfitError

import hostjit

Writer = Callable[[Draw, Program], Statement]
POINTWISE: list[Writer] = [
    pointwise_statements.unary,
    pointwise_statements.unary,
    pointwise_statements.binary,
    pointwise_statements.binary,
    pointwise_statements.ternary,
    pointwise_statements.cast,
]
REDUCTION: list[Writer] = [
    reduction_statements.reduction,
    reduction_statements.reduction,
    reduction_statements.with_index,
    reduction_statements.running,
]
NORMALISATION: list[Writer] = [reduction_statements.softmax, reduction_statements.normalisation]
MOVEMENT: list[Writer] = [
    movement_statements.join,
    movement_statements.part,
    movement_statements.rearrange,
    movement_statements.turn,
    movement_statements.look_up,
]
PRODUCT: list[Writer] = [product_statements.product]
LAYER: list[Writer] = [product_statements.attention, product_statements.convolution]
ALL = [*POINTWISE, *REDUCTION, *NORMALISATION, *MOVEMENT, *MOVEMENT, *PRODUCT]

FAMILIES = {
    "pointwise": (pointwise_statements.start, POINTWISE, 12),
    "reduction": (reduction_statements.start, REDUCTION, 6),
    "reduction_with_neighbours": (reduction_statements.start, [*REDUCTION, *POINTWISE], 10),
    "normalisation": (reduction_statements.start, [*NORMALISATION, *POINTWISE], 8),
    "movement": (movement_statements.start, MOVEMENT, 8),
    "movement_with_neighbours": (movement_statements.start, [*MOVEMENT, *POINTWISE], 10),
    "product": (product_statements.start, PRODUCT, 4),
    "layer": (product_statements.start, LAYER, 2),
    "everything": (pointwise_statements.start, ALL, 12),
}


@st.composite
def programs(draw: Draw, family: str) -> Program:
    start, writers, most = FAMILIES[family]
    program = Program(draw(st.sampled_from(STYLES)))
    start(draw, program)
    for _ in range(draw(st.sampled_from((1, 2, most // 2, most, most)))):
        try:
            statement = draw(st.sampled_from(writers))(draw, program)
        except UnfitError:
            continue
        program.run(statement)
    return program


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_eager(family: str) -> None:
    @given(programs(family))
    def agrees(program: Program) -> None:
        note(repr(program))
        check(program)

    agrees()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_agrees_with_eager_at_any_size(family: str) -> None:
    @settings(max_examples=settings().max_examples // 4)
    @given(programs(family))
    def agrees(program: Program) -> None:
        note(repr(program))
        check_at_any_size(program)

    agrees()


# What the random programs avoid until it is repaired: then these tests say so.


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_round_after_every_operator(dtype: torch.dtype) -> None:
    x = torch.full((4,), 3001.0, dtype=dtype)
    exact = {"rtol": 0, "atol": 0}
    for function in (lambda x: x * x / 4096, lambda x: (x / 3).float()):
        torch.testing.assert_close(hostjit.compile(function)(x), function(x), **exact)


def test_linear_of_an_input_with_an_inner_expanded_dim() -> None:
    x, weight = torch.randn(2, 1, 5).expand(2, 17, 5), torch.randn(3, 5)
    linear = torch.nn.functional.linear
    torch.testing.assert_close(hostjit.compile(linear)(x, weight), linear(x, weight))


@pytest.mark.parametrize("name", ["index", "log_sigmoid", "xlogy"])
def test_operators_whose_fake_tensors_have_other_strides(name: str) -> None:
    x, indices = torch.ones(3, 2).t(), torch.tensor([[0, 1, 1], [1, 0, 0]]).t()
    function = {
        "index": lambda: x[indices],
        "log_sigmoid": lambda: torch.nn.functional.logsigmoid(x),
        "xlogy": lambda: torch.xlogy(x.to(torch.int32), torch.ones(3, 2, 3, dtype=torch.int32)),
    }[name]
    torch.testing.assert_close(hostjit.compile(function)(), function())


@pytest.mark.parametrize("exponent", [False, True])
def test_powers_of_truth_values(exponent: bool) -> None:
    x = torch.tensor([True, False])
    found = hostjit.compile(lambda x: x**exponent)(x)
    torch.testing.assert_close(found, x**exponent)


def test_subtraction_refuses_a_truth_value() -> None:
    with pytest.raises(RuntimeError, match="bool"):
        hostjit.compile(lambda x: x - True)(torch.ones(2))


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh"])
def test_zeros_keep_their_sign(name: str) -> None:
    zeros = torch.tensor([-0.0, 0.0])
    function = getattr(torch.nn.functional, name)
    options = {"min_val": 0.0} if name == "hardtanh" else {}
    found = hostjit.compile(lambda x: function(x, **options))(zeros)
    assert torch.equal(found.signbit(), function(zeros, **options).signbit())
