# SPDX-License-Identifier: Apache-2.0
"""Whether hostjit and eager agree on a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from program import Program
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

import hostjit


def check(program: Program) -> None:
    """Compare values, types, strides and shared memory, by both runtimes, then the refusals."""
    if program.statements:
        eager = program.function()
        fast = hostjit.compile(program.function(), fallback=False)
        for runtime, variant in (("jit", 0), ("jit", 1), ("evaluator", 1)):
            with hostjit.runtime(runtime):
                _compare(program, eager, fast, variant, runtime)
    for expression in program.refused[:1]:
        check_refusal(program, expression)


def check_at_any_size(program: Program) -> None:
    """Compare values at other sizes than those that the program was written for."""
    source = program.source()
    # Eager has two ways, by strides; infinities that a causal mask leaves out show which.
    if not program.statements or (program.style == "special" and "is_causal" in source):
        return
    eager = program.function()
    fast = hostjit.compile(program.function(), dynamic=True)
    for by, runtime in ((0, "jit"), (1, "evaluator"), (1, "jit"), (5, "jit")):
        inputs = {name: operand.grown(by) for name, operand in program.inputs.items()}
        with hostjit.runtime(runtime):
            _compare(replace(program, inputs=inputs), eager, fast, 0, f"{runtime} at +{by}")


def _compare(
    program: Program,
    eager: Callable[..., Any],
    fast: Callable[..., Any],
    variant: int,
    runtime: str,
) -> None:
    inputs = program.make_inputs(variant)
    try:
        expected = eager(*inputs)
    except Exception as error:
        # Of several statements that fail, another may come first.
        others = (IndexError, RuntimeError) if _is_out_of_bounds(error) else ()
        _raises(fast, inputs, error, *others)
        return
    found = fast(*inputs)
    for untouched, given in zip(program.make_inputs(variant), inputs, strict=True):
        assert _same_bits(untouched, given), f"{runtime} wrote to an input"
    pairs = zip(program.statements, found, expected, strict=True)
    for number, (name, ours, theirs) in enumerate(pairs):
        what = f"{runtime}, variant {variant}: {name} = {program.statements[name].expression}"
        assert ours.dtype is theirs.dtype, what
        assert ours.shape == theirs.shape, what
        if _significant_strides(ours) != _significant_strides(theirs):
            message = f"{what}: strides {ours.stride()}, eager's are {theirs.stride()}"
            assert ours.stride() == _predicted_strides(eager, inputs, number), message
        for input_name, given in zip(program.inputs, inputs, strict=True):
            shared = [_shares(tensor, given) for tensor in (ours, theirs)]
            assert shared[0] == shared[1], f"{what}: shares memory with {input_name}: {shared}"
        exact = name not in program.inexact
        assert_close(
            ours,
            theirs,
            equal_nan=True,
            **({"rtol": 0, "atol": 0} if exact else {}),
            msg=lambda text, what=what: f"{what}: {text}",
        )
        if exact and theirs.is_floating_point():
            signs = [tensor.signbit() & ~theirs.isnan() for tensor in (ours, theirs)]
            assert torch.equal(*signs), f"{what}: signs differ"


def check_refusal(program: Program, expression: str) -> None:
    """Expect an error where eager raises one."""
    function = program.refused_function(expression)
    inputs = program.make_inputs()
    try:
        function(*inputs)
        return
    except Exception as error:
        refusal = error
    text = _raises(hostjit.compile(function, fallback=False), inputs, refusal)
    if _is_out_of_bounds(refusal):  # of several, each may be the first
        assert _without_index(text) == _without_index(str(refusal)), expression


def _without_index(text: str) -> str:
    return re.sub(r"-?\d+", "", text, count=1)


def _is_out_of_bounds(error: Exception) -> bool:
    """Whether eager found an index that is too large or too small, when it read it."""
    return (
        re.search(r"^index .* is out of bounds for|^index out of|^INDICES", str(error)) is not None
    )


def _raises(
    fast: Callable[..., Any], inputs: list[Tensor], expected: Exception, *others: type[Exception]
) -> str:
    """Expect eager's error, or that the program can't be captured: then nothing ran that raises."""
    with pytest.raises((type(expected), hostjit.CaptureError, *others)) as caught:
        fast(*inputs)
    return str(caught.value)


def _significant_strides(tensor: Tensor) -> list[int]:
    """Return the strides that say where an element is: not those of a single one, nor of none."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in pairs if size > 1 and tensor.numel()]


def _predicted_strides(
    eager: Callable[..., Any], inputs: list[Tensor], number: int
) -> tuple[int, ...]:
    """Return the strides of a result that fake tensors foretell.

    hostjit believes them. They are wrong where operands of several types have expanded dims.
    """
    with FakeTensorMode() as mode:
        result: Tensor = eager(*map(mode.from_tensor, inputs))[number]
    return result.stride()


def _shares(tensor: Tensor, other: Tensor) -> bool:
    storage = other.untyped_storage()
    return bool(storage.nbytes()) and tensor.untyped_storage().data_ptr() == storage.data_ptr()


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(12345.0), other.nan_to_num(12345.0))
