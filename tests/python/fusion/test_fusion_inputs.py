# SPDX-License-Identifier: Apache-2.0
"""What a definition says about its inputs is checked at every call."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit
from hostjit import DataType, FusionDefinition


def one_input(**defined: Any) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(**defined)
        fd.add_output(fd.ops.mul(x, 2.0))
    return fd


def add_scaled() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, 4], contiguity=True)
        y = fd.define_tensor(shape=[1, -1], contiguity=[None, True])
        s = fd.define_scalar(None, dtype=DataType.Double)
        fd.add_output(fd.ops.add(x, fd.ops.mul(y, s)))
    return fd


def error_of(function: Callable[..., Any], *args: Any) -> str | None:
    try:
        function(*args)
    except hostjit.Error as error:
        return str(error)
    return None


X, Y = torch.ones(3, 4), torch.ones(1, 4)
WRONG = {
    "too few": ([X, Y], r"expected 3 fusion inputs \(T0, T1, S2\), found 2"),
    "too many": ([X, Y, 1.0, 2.0], r"expected 3 fusion inputs \(T0, T1, S2\), found 4"),
    "a number": ([2.0, Y, 1.0], r"fusion input 0 \(T0\): expected a tensor, found the scalar 2.0"),
    "None": ([X, None, 1.0], r"fusion input 1 \(T1\): expected a tensor, found .* type NoneType"),
    "a tensor": (
        [X, Y, torch.ones(2)],
        r"fusion input 2 \(S2\): expected a scalar of DataType.Double, found a torch.float32 "
        r"tensor of rank 1",
    ),
    "complex": ([X, Y, 2 + 1j], r"\(S2\): expected a scalar of DataType.Double, found .*\(2\+1j\)"),
    "text": ([X, Y, "1"], r"\(S2\): expected a scalar of DataType.Double, found .* type str"),
    "rank": (
        [torch.ones(2, 3, 4), Y, 1.0],
        r"\(T0\): expected rank 2, found rank 3 \(shape \[2, 3, 4\]\)",
    ),
    "dtype": (
        [X, Y.double(), 1.0],
        r"\(T1\): expected dtype torch.float32, found torch.float64",
    ),
    "size": ([torch.ones(3, 5), Y, 1.0], r"\(T0\): expected size 4 in dim 1, found 5"),
    "broadcast": (
        [X, torch.ones(3, 4), 1.0],
        r"\(T1\): expected size 1 \(broadcast\) in dim 0, found 3",
    ),
    "strides": (
        [torch.ones(4, 3).t(), Y, 1.0],
        r"\(T0\): dim 1 is defined as contiguous: expected stride 1, found 3 \(shape \[3, 4\], "
        r"strides \[1, 3\]\)",
    ),
    "outer stride": (
        [torch.ones(3, 8)[:, :4], Y, 1.0],
        r"\(T0\): dim 0 is defined as contiguous: expected stride 4, found 8",
    ),
    "device": ([X, Y.to("meta"), 1.0], r"\(T1\): expected device cpu as .* \(T0\), found meta"),
    "layout": ([X.to_sparse(), Y, 1.0], r"\(T0\): expected a strided tensor, found layout"),
}


@pytest.mark.parametrize("dynamic", [None, True])
def test_inputs_that_contradict_the_definition(dynamic: bool | None) -> None:
    compiled = hostjit.compile(add_scaled(), dynamic=dynamic)
    for round_ in range(3):  # before and after there are programs
        for inputs, message in WRONG.values():
            for _ in range(2):
                with pytest.raises(hostjit.Error, match=message):
                    compiled(*inputs)
        right = torch.randn(3 + round_, 4), torch.randn(1, 4), 0.5 + round_
        (found,) = compiled(*right)
        torch.testing.assert_close(found, right[0] + right[1] * right[2])
    with pytest.raises(hostjit.Error, match="by position"):
        compiled(T0=X)


def test_what_the_shapes_of_a_call_contradict_is_pytorchs_error() -> None:
    fd = add_scaled()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"size of tensor a \(4\) must match"):
            fd.execute([X, torch.ones(1, 3), 1.0])


def test_sizes_and_numbers_vary_in_one_program(runtime: str) -> None:
    fd = add_scaled()
    compiled = hostjit.compile(fd, dynamic=True, runtime=runtime)
    for size, number in itertools.product((3, 2, 7, 64), (2.5, 0.0, 1.0, -3.0)):
        x, y = torch.randn(size, 4), torch.randn(1, 4)
        torch.testing.assert_close(compiled(x, y, number)[0], x + y * number)
    assert len(compiled.specializations) == 1
    x, y = torch.randn(1, 4), torch.randn(1, 4)  # a size of 1 has a program of its own
    torch.testing.assert_close(compiled(x, y, 2.0)[0], x + y * 2.0)
    assert len(compiled.specializations) == 2


def test_the_second_size_opens_a_dim(runtime: str) -> None:
    compiled = hostjit.compile(add_scaled(), runtime=runtime)
    for size in (3, 5, 2, 9):
        x, y = torch.randn(size, 4), torch.randn(1, 4)
        torch.testing.assert_close(compiled(x, y, float(size))[0], x + y * size)
    assert len(compiled.specializations) == 2


def test_integers_and_vectors_vary(runtime: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1], contiguity=True)
        sizes = fd.define_vector(2)
        n = fd.define_scalar(DataType.Int)
        fd.add_output(fd.ops.mul(fd.ops.reshape(x, sizes), n))
    compiled = hostjit.compile(fd, runtime=runtime)
    for a, b, number in ((3, 4, 2), (6, 2, 5), (2, 6, 0), (4, 3, -7)):
        y = torch.randn(12)
        torch.testing.assert_close(compiled(y, a, b, number)[0], y.reshape(a, b) * number)
        torch.testing.assert_close(fd.execute([y, [a, b], number])[0], y.reshape(a, b) * number)
    assert len(compiled.specializations) <= 2


@pytest.mark.parametrize(
    ("data_type", "good", "bad"),
    [
        (DataType.Int, (3, True, -(2**62)), (2.0, 1j, 2**63)),
        (DataType.Int32, (3,), (2**31, 1.0)),
        (DataType.Bool, (True, False), (1, 0.0)),
        (DataType.Double, (1.0, 3, True), (1j, "1", None)),
        (DataType.ComplexDouble, (1j, 2.0), ("1",)),
    ],
)
def test_numbers_of_other_kinds(data_type: DataType, good: Any, bad: Any) -> None:
    with FusionDefinition() as fd:
        s = fd.define_scalar(None, data_type)
        fd.add_output(fd.ops.full([2], s, data_type))
    for value in good:
        found = fd.execute([value])[0]
        torch.testing.assert_close(found, torch.full((2,), value, dtype=data_type.torch_dtype))
    for value in bad:
        with pytest.raises(hostjit.Error, match=r"fusion input 0 \(S0\): expected a scalar of"):
            fd.execute([value])


def test_expanded_dims_have_stride_zero() -> None:
    fd = one_input(shape=[-1, -1], contiguity=[None, True])
    x = torch.randn(4)
    torch.testing.assert_close(fd.execute([x.expand(3, 4)])[0], x.expand(3, 4) * 2)
    with pytest.raises(hostjit.Error, match="dim 0 is defined as expanded: expected stride 0"):
        fd.execute([torch.randn(3, 4)])


def test_an_input_of_any_strides() -> None:
    fd = one_input(shape=[-1, -1])
    x = torch.randn(6, 8)
    for y in (x, x.t(), x[::2, ::3], x[:, :1].expand(6, 4)):
        torch.testing.assert_close(fd.execute([y])[0], y * 2)


def test_an_order_of_strides() -> None:
    channels_last = [3, 0, 2, 1]
    fd = one_input(shape=[-1, -1, -1, -1], contiguity=True, stride_order=channels_last)
    x = torch.randn(2, 3, 4, 5)
    (found,) = fd.execute([x.to(memory_format=torch.channels_last)])
    torch.testing.assert_close(found, x * 2)
    with pytest.raises(hostjit.Error, match="dim 1 is defined as contiguous: expected stride 1"):
        fd.execute([x])


@pytest.mark.filterwarnings("ignore:hostjit")  # programs for one combination of sizes each
@pytest.mark.parametrize("seed", range(12))
def test_programs_take_what_the_definition_takes(seed: int) -> None:
    """Whatever was compiled, a call is refused if and only if the definition refuses it."""
    choose = random.Random(seed)
    rank = choose.randint(1, 3)
    shape = [choose.choice([-1, -1, -1, 1, 4]) for _ in range(rank)]
    order = choose.sample(range(rank), rank)
    contiguity = [choose.choice([True, True, False]) for _ in range(rank)]
    fd = one_input(shape=shape, contiguity=contiguity, stride_order=order)
    compiled = hostjit.compile(fd, dynamic=choose.choice([None, True]))
    refused = 0
    for _ in range(30):
        sizes = [choose.choice([1, 2, 3, 4, 4]) if s == -1 else s for s in shape]
        memory = [size * choose.choice([1, 1, 1, 2]) for size in sizes]
        outer_first = sorted(range(rank), key=lambda dim: -order[dim])
        if choose.random() < 0.2:
            choose.shuffle(outer_first)
        x = torch.randn([memory[dim] for dim in outer_first])
        x = x.permute([outer_first.index(dim) for dim in range(rank)])
        for dim, size in enumerate(sizes):
            x = x[(slice(None),) * dim + (slice(None, None, memory[dim] // size),)]
        error = error_of(fd.check, [x])
        refused += error is not None
        assert error_of(compiled, x) == error
        if error is None:
            torch.testing.assert_close(compiled(x)[0], x * 2)
    assert refused < 30


def test_from_pytorch_describes_a_tensor() -> None:
    x = torch.randn(4, 1, 6).permute(2, 1, 0)[:, :, ::2]
    with FusionDefinition() as fd:
        fd.from_pytorch(x)
        fd.from_pytorch(torch.ones(2, 1, 6).bfloat16().mT, static_sizes=True)
        fd.from_pytorch(torch.randn(5).expand(3, 5))
        fd.from_pytorch(torch.tensor(1))
    assert [str(known) for known in fd.inputs] == [
        "fd.define_tensor(shape=[-1, 1, -1], contiguity=[False, None, True], "
        "dtype=DataType.Float, is_cpu=True, stride_order=[0, 1, 2])",
        "fd.define_tensor(shape=[2, 6, 1], contiguity=[True, None, True], "
        "dtype=DataType.BFloat16, is_cpu=True, stride_order=[2, 0, 1])",
        "fd.define_tensor(shape=[-1, -1], contiguity=[None, True], "
        "dtype=DataType.Float, is_cpu=True, stride_order=[1, 0])",
        "fd.define_tensor(shape=[], contiguity=[], dtype=DataType.Int, is_cpu=True, "
        "stride_order=[])",
    ]
    fd.check([x, torch.ones(2, 1, 6).bfloat16().mT, torch.randn(5).expand(2, 5), torch.tensor(1)])


def test_sizes_and_strides_in_place_of_a_shape() -> None:
    with FusionDefinition() as fd:
        fd.define_tensor([2, 3], [3, 1], DataType.Half)
        fd.define_tensor(sizes=[2, 3], strides=[1, 2], static_sizes=True)
        with pytest.raises(hostjit.Error, match="sizes has 2 entries and strides 1"):
            fd.define_tensor([2, 3], [3])
    assert "shape=[-1, -1], contiguity=[True, True]" in str(fd.inputs[0])
    assert "shape=[2, 3]" in str(fd.inputs[1]) and "stride_order=[0, 1]" in str(fd.inputs[1])
