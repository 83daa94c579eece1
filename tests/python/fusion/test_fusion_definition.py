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
