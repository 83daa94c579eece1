# SPDX-License-Identifier: Apache-2.0
"""Definitions: how they are written, what they refuse, what they return and write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import hostjit
from hostjit import DataType, FusionDefinition


def defined(define: Callable[[FusionDefinition], None]) -> FusionDefinition:
    with FusionDefinition() as fd:
        define(fd)
    return fd


def relu_of_sum(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1], contiguity=True)
    y = fd.define_tensor(shape=[-1], contiguity=True)
    fd.add_output(fd.ops.relu(fd.ops.add(x, y)))


class RatioOfNorms(FusionDefinition):
    def definition(self) -> None:
        x = self.define_tensor([-1, -1], contiguity=[True, True])
        self.add_output(self.ops.truediv(self.ops.sum(x, [0]), self.size_of(x)))

    def size_of(self, x: Any) -> Any:
        return self.ops.size(x, 0)


def test_a_subclass_defines_itself() -> None:
    fd, x = RatioOfNorms(), torch.randn(3, 4)
    torch.testing.assert_close(fd.execute([x])[0], x.mean(0))
    torch.testing.assert_close(hostjit.compile(RatioOfNorms())(x)[0], x.mean(0))


def test_inputs_may_be_defined_between_operations() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        y = fd.ops.exp(x)
        s = fd.define_scalar()
        fd.add_output(fd.ops.sub(s, y))
    x = torch.randn(4)
    torch.testing.assert_close(fd.execute([x, 2.0])[0], 2.0 - x.exp())


def test_what_is_not_complete_does_not_run() -> None:
    with pytest.raises(hostjit.Error, match="the fusion is not defined: use `with"):
        FusionDefinition().execute([])
    with pytest.raises(hostjit.Error, match="the fusion is empty: it has no outputs"):
        hostjit.compile(defined(lambda fd: None))
    fd = FusionDefinition()
    with pytest.raises(hostjit.Error, match=r"ops.iota: the fusion is not being defined"):
        fd.ops.iota(3)
    with fd:
        x = fd.ops.iota(3)
        fd.add_output(x)
        with pytest.raises(hostjit.Error, match="cannot run: it is being defined"):
            fd.execute([])
    with pytest.raises(hostjit.Error, match=r"define_tensor: the fusion is defined"):
        fd.define_tensor([3])
    with pytest.raises(hostjit.Error, match=r"add_output: the fusion is defined"):
        fd.add_output(x)
    with pytest.raises(hostjit.Error, match="this FusionDefinition is defined"), fd:
        pass
    broken = FusionDefinition()
    with pytest.raises(ValueError, match="mine"), broken:
        raise ValueError("mine")
    with pytest.raises(hostjit.Error, match="without a definition, which raised"):
        broken.execute([])
    with pytest.raises(hostjit.Error, match="hostjit schedules by itself"):
        _ = fd.sched


def test_a_fusion_of_no_inputs() -> None:
    fd = defined(lambda fd: fd.add_output(fd.ops.iota(3)))
    for device in (None, "cpu", torch.device("cpu")):
        assert fd.execute([], device=device)[0].tolist() == [0, 1, 2]
    with pytest.raises(hostjit.Error, match="expected device meta, found cpu"):
        defined(relu_of_sum).execute([torch.ones(2), torch.ones(2)], device="meta")


def test_outputs_are_returned_in_order() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        y = fd.ops.neg(x)
        for tensor in (y, x, y):
            fd.add_output(tensor)
    x = torch.randn(3)
    first, second, third = fd.execute([x])
    assert second is x and torch.equal(first, -x) and torch.equal(third, -x)


def test_an_output_is_written_to_an_input(runtime: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        s = fd.define_scalar()
        y = fd.ops.add(x, s)
        fd.add_output(y, alias_input=x)
        fd.add_output(fd.ops.mul(y, 2.0))
    compiled = hostjit.compile(fd, runtime=runtime)
    for rows, number in ((2, 1.5), (3, -1.0), (5, 0.25)):
        x = torch.randn(rows, 3)
        before, x_memory = x.clone(), x.data_ptr()
        found = compiled(x, number)
        assert len(found) == 1 and x.data_ptr() == x_memory
        torch.testing.assert_close(x, before + number)
        torch.testing.assert_close(found[0], (before + number) * 2)
    assert "fd.add_output(T2, T0)" in repr(fd)


def test_what_is_returned_and_written_is_the_input() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        y = fd.ops.relu(x)
        fd.add_output(y)
        fd.add_output(y, x)
        fd.add_output(x)
    x = torch.tensor([1.0, -1.0])
    for found in fd.execute([x]):
        assert found is x
    assert x.tolist() == [1.0, 0.0]


def test_writes_come_after_all_that_is_computed() -> None:
    """Views of inputs are returned, and written elsewhere, as they were before."""
    with FusionDefinition() as fd:
        x, y = fd.define_tensor(shape=[-1, -1]), fd.define_tensor(shape=[-1, -1])
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(y, x)
        fd.add_output(fd.ops.permute(fd.ops.permute(x, [1, 0]), [1, 0]), y)
        fd.add_output(fd.ops.slice(y, [0, 0], [1, 100]))
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    old_x, old_y = x.clone(), y.clone()
    turned, row = fd.execute([x, y])
    assert torch.equal(turned, old_x.t()) and torch.equal(row, old_y[:1])
    assert torch.equal(x, old_y) and torch.equal(y, old_x)


def test_results_of_operations_that_change_nothing_are_not_the_input() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1])
        same = fd.ops.cast(x, DataType.Float), fd.ops.clamp(x, None, None), fd.ops.set(x)
        for result in same:
            fd.add_output(result)
            with pytest.raises(hostjit.Error, match="which is no input"):
                fd.add_output(x, result)
    x = torch.randn(3)
    for found in fd.execute([x]):
        assert torch.equal(found, x) and found.data_ptr() != x.data_ptr()


def test_writes_that_do_not_fit() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1])
        y = fd.define_tensor(shape=[-1, -1])
        z = fd.ops.exp(y)
        for wrong in (fd.ops.cast(z, DataType.Half), fd.ops.sum(z, [0])):
            with pytest.raises(hostjit.Error, match=r"cannot be written to T0"):
                fd.add_output(wrong, x)
        with pytest.raises(hostjit.Error, match=r"alias_input is T2.*, which is no input"):
            fd.add_output(x, z)
        with pytest.raises(hostjit.Error, match=r"output is S5.*, expected a tensor"):
            fd.add_output(fd.ops.size(x, 0))
        fd.add_output(z, x)
    with pytest.raises(RuntimeError, match=r"shape \[1, 3\] cannot be written to an input of"):
        fd.execute([torch.zeros(2, 3), torch.zeros(1, 3)])


def test_values_of_another_definition() -> None:
    with FusionDefinition() as other:
        foreign, number = other.define_tensor([3]), other.define_scalar()
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[3])
        with pytest.raises(hostjit.Error, match=r"ops.add: argument 'rhs' is T0.* of another"):
            fd.ops.add(x, foreign)
        with pytest.raises(hostjit.Error, match=r"ops.add: argument 'lhs' is S1.* of another"):
            fd.ops.add(number, x)
        with pytest.raises(hostjit.Error, match=r"ops.cat: argument 'tensors' is T0.* of another"):
            fd.ops.cat([x, foreign])
        with pytest.raises(hostjit.Error, match=r"add_output: output is T0.* of another"):
            fd.add_output(foreign)


WRONG_USES: list[tuple[Callable[..., Any], str]] = [
    (lambda o, x, y: o.add(x), r"ops.add: missing a required argument: 'rhs'"),
    (lambda o, x, y: o.add(x, "1"), "argument 'rhs' is '1' of type str, expected a scalar"),
    (lambda o, x, y: o.add(x, y), "sizes 5 and 4 in dim -1 do not fit together|sizes 4 and 5"),
    (lambda o, x, y: o.sum(x, [2]), "ops.sum: dim 2 is out of range, expected -2 to 1 for 2 dims"),
    (lambda o, x, y: o.sum(x, [0, -2]), "dim 0 is named more than once"),
    (lambda o, x, y: o.sum(x, []), "no dims to reduce"),
    (lambda o, x, y: o.sum(x, 0.5), "argument 'dims' is 0.5 .*, expected a DataType or"),
    (lambda o, x, y: o.max(x, [0], False, DataType.Half), "has the dtype of its operand"),
    (lambda o, x, y: o.var(x, [0], -1), "correction is -1, expected 0 or more"),
    (lambda o, x, y: o.var_mean(o.cast(x, DataType.Half), [0]), "takes Float or wider"),
    (lambda o, x, y: o.permute(x, [0]), r"dims \[0\] are not all 2 dims"),
    (lambda o, x, y: o.permute(x, [0, 0]), "dims 0 is named more than once"),
    (lambda o, x, y: o.reshape(y, [7]), "has 5 elements, and new_shape 7"),
    (lambda o, x, y: o.reshape(x, [-1, -1]), "more than one -1"),
    (lambda o, x, y: o.reshape(x, [-2]), r"new_shape\[0\] is -2, expected -1 or more"),
    (lambda o, x, y: o.reshape(x, [2.5]), r"new_shape\[0\] has to be an integer"),
    (lambda o, x, y: o.broadcast(y, [True]), "0 times False, expected 1 times"),
    (
        lambda o, x, y: o.broadcast_in_dim(y, [3, 5], [0, 1]),
        "has 2 entries for 2 sizes, expected 1",
    ),
    (lambda o, x, y: o.broadcast_in_dim(y, [3, 6], [1]), "dim 1 has size 5 and cannot have size 6"),
    (lambda o, x, y: o.expand(y, []), "shape has 0 sizes, expected 1 or more"),
    (lambda o, x, y: o.squeeze(y, [0]), "dim 0 of T1.* has size 5, expected 1"),
    (lambda o, x, y: o.slice(y, [-1], [2]), r"start_indices\[0\] is -1"),
    (lambda o, x, y: o.slice(y, [3], [2]), "is 2, less than the start 3"),
    (lambda o, x, y: o.slice(y, [0], [2], [2]), r"strides\[0\] is .*, expected 1"),
    (lambda o, x, y: o.slice(x, [0], [2]), "start_indices has 1 entries, expected 2"),
    (lambda o, x, y: o.cat([]), "takes one tensor or more"),
    (lambda o, x, y: o.cat([x, y]), "does not fit"),
    (lambda o, x, y: o.pad(y, [1]), "pad_widths has 1 entries"),
    (lambda o, x, y: o.pad(y, [1, 1], 2), "value is scalar 2 of DataType.Int, expected one of"),
    (lambda o, x, y: o.stride_order(x, [0]), "has no entry for each dim"),
    (lambda o, x, y: o.where(x, x, x), "the condition has to be of DataType.Bool"),
    (lambda o, x, y: o.bitwise_and(x, x), "takes integers or bools, found DataType.Float"),
    (lambda o, x, y: o.gcd(x, 2), "takes integers, found DataType.Float and DataType.Int"),
    (lambda o, x, y: o.nextafter(o.cast(x, DataType.ComplexFloat), x), "takes Float or Double"),
    (lambda o, x, y: o.imag(x), "takes complex numbers"),
    (lambda o, x, y: o.gather(x, x, 0), "index has to be of integers"),
    (lambda o, x, y: o.gather(x, y, 0), "has 1 dims, expected 2"),
    (lambda o, x, y: o.matmul(x, o.cast(x, DataType.Double)), "differ in dtype"),
    (lambda o, x, y: o.matmul(x, y), "do not fit: 4 and 5 should be equal"),
    (lambda o, x, y: o.linear(x, y), "takes a tensor with dims and a matrix"),
    (lambda o, x, y: o.iota(3, 1.5), "start is scalar 1.5 .*, expected one of DataType.Int"),
    (lambda o, x, y: o.iota(3, step=0), "step is 0"),
    (lambda o, x, y: o.uniform(0.0, 1.0, [2], dtype=DataType.Int), "expected floating point"),
    (lambda o, x, y: o.uniform(0.0, 1.0, [2], rng_seed=1, rng_offset=2), "torch.manual_seed"),
    (lambda o, x, y: o.cumsum(x, 2), "dim 2 is out of range"),
    (
        lambda o, x, y: o.full([2], o.exp(1.0), "f"),
        "argument 'dtype' is 'f'.*, expected a DataType",
    ),
    (lambda o, x, y: o.select(x, o.exp(1.0), 0), "index has to be an integer"),
    (lambda o, x, y: o.cast(x, DataType.Float4_e2m1fn), "has no dtype of PyTorch"),
    (lambda o, x, y: o.sdpfa_fwd(x, x, x), "takes tensors of 4 dims"),
    (lambda o, x, y: o.clamp(o.cast(x, DataType.Int), float("-inf"), 3), "-inf is no DataType.Int"),
    (lambda o, x, y: o.div(3, 0), "3 is divided by 0"),
]


@pytest.mark.parametrize("number", range(len(WRONG_USES)))
def test_operations_refuse_what_they_cannot_take(number: int) -> None:
    use, message = WRONG_USES[number]
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, 4]), fd.define_tensor([5])
        with pytest.raises(hostjit.Error, match=message):
            use(fd.ops, x, y)
        fd.add_output(fd.ops.neg(x))
    torch.testing.assert_close(fd.execute([torch.ones(2, 4), torch.ones(5)])[0], -torch.ones(2, 4))


def test_inputs_that_cannot_be_defined() -> None:
    with FusionDefinition() as fd:
        for arguments, message in (
            ({"shape": [-2]}, r"shape\[0\] is -2, expected -1"),
            ({"shape": [2], "contiguity": [True, True]}, "contiguity has 2 entries, expected 1"),
            ({"shape": [2, 2], "stride_order": [0, 0]}, r"stride_order is \[0, 0\], expected each"),
            ({"shape": [2], "dtype": DataType.Float4_e2m1fn}, "has no dtype of PyTorch"),
        ):
            with pytest.raises(hostjit.Error, match=message):
                fd.define_tensor(**arguments)
        with pytest.raises(hostjit.Error, match="the value is of type str, expected a number"):
            fd.define_scalar("1")
        assert not fd.inputs
        assert [s.dtype() for s in fd.define_vector([3, None], DataType.Int32)] == [
            DataType.Int32,
            DataType.Int32,
        ]
        assert len(fd.inputs) == 1 and not fd.define_scalar(2).is_symbolic()


def test_arithmetic_of_scalars_is_known_or_computed(runtime: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        n, s = fd.define_scalar(None, DataType.Int), fd.define_scalar(None, DataType.Double)
        o = fd.ops
        constant = o.mul(o.add(fd.define_scalar(3), 4), o.sub(2, 5))
        assert constant.value == -21 and constant.dtype() is DataType.Int
        for tensor in (
            o.mul(x, constant),
            o.add(x, o.div(o.neg(n), 2)),
            o.add(x, o.mod(o.neg(n), 4)),
            o.mul(x, o.exp(o.neg(s))),
            o.add(x, o.truediv(n, s)),
            o.where(o.gt(s, 1.0), x, o.sqrt(s)),
            o.full([o.cast(o.mul(o.reciprocal(4.0), 8), DataType.Int)], 3, DataType.Int),
            o.full([o.maximum(n, 2), o.add(o.fmod(x.size(0), 3), 1)], 1.0, DataType.Float),
        ):
            fd.add_output(tensor)
    compiled = hostjit.compile(fd, runtime=runtime)
    x = torch.randn(4)
    for n, s in ((7, 2.5), (5, 0.5), (9, 1.25)):
        expected = [
            x * -21,
            x - n // 2,
            x - n % 4,
            x * torch.tensor(-s).exp(),
            x + n / s,
            x if s > 1.0 else torch.full((4,), s).sqrt(),
            torch.tensor([3, 3]),
            torch.ones(n, 2),
        ]
        torch.testing.assert_close(compiled(x, n, s), expected)
    assert len(compiled.specializations) == 1


def test_sizes_that_are_computed_with_floats() -> None:
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([-1]), fd.define_scalar(None, DataType.Int)
        o = fd.ops
        half = o.cast(o.mul(o.truediv(n, 4), 2.0), DataType.Int)
        more = o.where(o.gt(half, 3), half, o.add(half, o.cast(o.ne(n, 4), DataType.Int)))
        fd.add_output(o.slice(x, [0], [more]))
        fd.add_output(o.full([o.mul(o.reciprocal(n), 20)], 1.0, DataType.Float))
    for number, size in ((4, 2), (5, 3), (6, 4), (9, 4), (20, 10)):
        first, second = fd.execute([torch.ones(12), number])
        assert first.shape == (size,) and second.shape == (20 // number,)


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (DataType.Half, DataType.Half, DataType.Float),
        (DataType.Half, DataType.BFloat16, DataType.Float),
        (DataType.BFloat16, DataType.Double, DataType.Double),
        (DataType.Int, DataType.Float, DataType.Float),
        (DataType.Int32, DataType.Int, DataType.Int),
        (DataType.Bool, DataType.Int32, DataType.Int32),
        (DataType.Int, 2.0, DataType.Double),
        (DataType.Int32, 2, DataType.Int32),
        (DataType.Bool, 2, DataType.Int),
        (DataType.Float, 2.0, DataType.Float),
        (DataType.Half, 2.0, DataType.Float),
        (DataType.Float, 1j, DataType.ComplexFloat),
        (DataType.Double, 1j, DataType.ComplexDouble),
        (DataType.ComplexFloat, DataType.Double, DataType.ComplexDouble),
    ],
)
def test_dtypes_are_nvfusers(left: DataType, right: Any, common: DataType) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([3], dtype=left)
        y = fd.define_tensor([3], dtype=right) if isinstance(right, DataType) else right
        z = fd.ops.mul(x, y)
        fd.add_output(z)
    assert z.dtype() is common
    a = torch.tensor([0, 1, 3]).to(left.torch_dtype)
    b = torch.tensor([2, 3, 4]).to(right.torch_dtype) if isinstance(right, DataType) else right
    wide = common.torch_dtype
    right_values = b.to(wide) if isinstance(b, torch.Tensor) else torch.tensor(b, dtype=wide)
    found = fd.execute([value for value in (a, b) if isinstance(value, torch.Tensor)])[0]
    torch.testing.assert_close(found, a.to(wide) * right_values)


def test_data_types_and_pytorchs() -> None:
    for data_type in DataType:
        if data_type not in (DataType.Null, DataType.Index, DataType.Float4_e2m1fn):
            assert DataType.of(data_type.torch_dtype) is data_type
    assert DataType.Index.torch_dtype is torch.int64
    assert eval(repr(DataType.Half)) is DataType.Half
    with pytest.raises(hostjit.Error, match=r"no DataType for torch\.int8"):
        DataType.of(torch.int8)


def test_a_script_runs_what_was_run() -> None:
    fd = defined(relu_of_sum)
    with pytest.raises(hostjit.Error, match="save_repro_inputs"):
        fd.last_repro_script()
    fd.execute([torch.ones(3), torch.ones(6)[::2].clone()], save_repro_inputs=True)
    namespace: dict[str, Any] = {}
    exec(fd.last_repro_script(), namespace)
    assert namespace["outputs"][0].shape == (3,)
    exec(fd.repro_script_for([torch.ones(3), torch.ones(3)]), namespace)
    with FusionDefinition() as strided:
        x, s = strided.define_tensor([-1, -1]), strided.define_scalar()
        strided.add_output(strided.ops.mul(x, s))
    exec(strided.repro_script_for([torch.ones(4, 6)[::2, ::3], float("inf")]), namespace)
    assert namespace["outputs"][0].shape == (2, 2)


def test_a_definition_can_be_copied_and_pickled() -> None:
    fd, inputs = defined(relu_of_sum), [torch.randn(3), torch.randn(3)]
    expected = fd.execute(inputs)
    compiled = hostjit.compile(fd)
    for other in (copy.deepcopy(fd), pickle.loads(pickle.dumps(fd))):
        assert repr(other) == repr(fd)
        torch.testing.assert_close(other.execute(inputs), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(compiled))(*inputs), expected)
    torch.testing.assert_close(hostjit.compile(compiled, runtime="evaluator")(*inputs), expected)


def test_gradients_flow_as_in_eager_mode() -> None:
    fd = defined(relu_of_sum)
    with torch.enable_grad():
        x, y = torch.randn(4, requires_grad=True), torch.randn(4)
        fd.execute([x, y])[0].sum().backward()
    assert torch.equal(x.grad, (x + y > 0).float())


def test_options_of_compile() -> None:
    fd = defined(relu_of_sum)
    with pytest.raises(hostjit.Error, match="says itself which sizes are open"):
        hostjit.compile(fd, dynamic_shapes=({0: 1}, None))
    compiled = hostjit.compile(fd, reuse_outputs=True)
    x, y = torch.randn(4), torch.randn(4)
    assert compiled(x, y)[0] is compiled(x, y)[0]
    assert "launch_kernel" in compiled.host_ir()
