# SPDX-License-Identifier: Apache-2.0
"""Every operation of `fd.ops` against PyTorch, in both runtimes and from its own text."""

from __future__ import annotations

from typing import Any

import index_and_product_samples
import pointwise_samples
import pytest
import structural_samples
import torch
from sample import SAMPLES, Sample
from torch._subclasses.fake_tensor import FakeTensorMode

import hostjit
from hostjit import DataType, FusionDefinition
from hostjit.fusion.operation import OPERATIONS, UNAVAILABLE
from hostjit.fusion.operations import Operations
from hostjit.fusion.values import Tensor

# Their tables are filled.
assert index_and_product_samples and pointwise_samples and structural_samples and Operations
_ALL = [(name, number) for name, samples in SAMPLES.items() for number in range(len(samples))]


def define(sample: Sample, inputs: list[Any]) -> tuple[FusionDefinition, list[Tensor]]:
    """Define a sample, with all sizes open and numbers as inputs."""
    with FusionDefinition() as fd:
        values = [
            fd.from_pytorch(value)
            if isinstance(value, torch.Tensor)
            else fd.define_scalar(None, DataType.Int if type(value) is int else DataType.Double)
            for value in inputs
        ]
        found = sample.define(fd, *values)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        for result in results:
            fd.add_output(result)
    return fd, results


def copies(inputs: list[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]


def test_each_operation_has_a_sample() -> None:
    assert dir(FusionDefinition().ops) == sorted(OPERATIONS)
    assert set(SAMPLES) == set(OPERATIONS)
    assert not set(OPERATIONS) & set(UNAVAILABLE)


@pytest.mark.parametrize(("name", "number"), _ALL)
def test_an_operation_agrees_with_pytorch(name: str, number: int) -> None:
    sample = SAMPLES[name][number]
    inputs = sample.inputs()
    expected = sample.expected(*copies(inputs))
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    fd, results = define(sample, inputs)
    for runtime in ("jit", "evaluator"):
        torch.manual_seed(1)
        compiled = hostjit.compile(fd, runtime=runtime, fallback=False)
        found = compiled(*inputs)
        assert isinstance(found, list) and compiled.specializations[0].program is not None
        for tensor, right, result in zip(found, expected, results, strict=True):
            torch.testing.assert_close(tensor, right, equal_nan=True)
            assert tensor.dtype == result.dtype().torch_dtype
            assert tensor.dim() == result.ndim
            for size, known in zip(tensor.shape, result.sizes, strict=True):
                assert known in (None, size)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_text_of_a_definition_defines_the_same(name: str) -> None:
    for sample in SAMPLES[name]:
        inputs = sample.inputs()
        fd, _ = define(sample, inputs)
        namespace: dict[str, Any] = {}
        exec(repr(fd), namespace)
        with FusionDefinition() as again:
            namespace["nvfuser_fusion"](again)
        assert repr(again) == repr(fd)
        assert str(again.graph()) == str(fd.graph())
    torch.manual_seed(1)
    found = fd.execute(inputs)
    torch.manual_seed(1)
    for one, other in zip(found, again.execute(inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", SAMPLES)
def test_results_are_on_the_device_of_the_inputs(name: str) -> None:
    for sample in SAMPLES[name]:
        inputs = sample.inputs()
        graph = define(sample, inputs)[0].graph()
        takes_tensors = any(isinstance(value, torch.Tensor) for value in inputs)
        with FakeTensorMode():
            elsewhere = [
                torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda:0")
                if isinstance(value, torch.Tensor)
                else value
                for value in inputs
            ]
            for result in torch.fx.GraphModule({}, graph).forward(*elsewhere):
                assert result.device.type == ("cuda" if takes_tensors else "cpu")


@pytest.mark.parametrize("name", sorted(UNAVAILABLE))
def test_what_is_not_available_says_why(name: str) -> None:
    with pytest.raises(hostjit.Error, match=f"ops.{name}: not available in hostjit"):
        getattr(FusionDefinition().ops, name)


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"ops.sigmoidd: .*; nearest: sigmoid"):
        _ = FusionDefinition().ops.sigmoidd
    with pytest.raises(AttributeError, match=r"ops.select_index: .*; nearest: .*index_select"):
        _ = FusionDefinition().ops.select_index
