# SPDX-License-Identifier: Apache-2.0
"""Compare a call of a compiled operator with eager's: all that a caller can see.

That is: the structure, types and values of the result, dtypes, strides and layouts of its tensors,
which arguments they share memory with and at which offset, what became of the arguments, gradients,
or the class of the exception.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo.utils
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

import hostjit
from conformance.case import EAGERLY, PER_SIZE, Call
from conformance.effects import Effects, called, effects, effects_of_steps
from conformance.optimizers import Steps
from conformance.resized import resized
from conformance.subjects import Subject
from hostjit.backend.frames import FRAMES_LEFT

__all__ = ["DIFFERS", "RAISES", "REFUSED", "Finding", "Shared", "compare"]

REFUSED = "refused"
DIFFERS = "differs"
RAISES = "raises"
# Eager rounds to them after every step of some operators.
_HALVES = (torch.bfloat16, torch.float16)
# How often eager is asked whether it agrees with itself.
_EAGER_RUNS = 3


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one call showed.

    Attributes:
        kind: "" when all agrees, EAGERLY when it does because the subject ran the call eagerly,
            PER_SIZE when it does by a program for each size, else REFUSED, DIFFERS or RAISES.
        message: in one line.
    """

    kind: str = ""
    message: str = ""


# What a subject that is shared made of the operators of a case.
Shared = dict[Callable[..., Any], tuple[Callable[..., Any], Callable[..., Any]]]


def compare(call: Call | Steps, subject: Subject, shared: Shared | None = None) -> Finding:
    """Call eagerly, then in every run of the subject, on equal arguments from equal seeds.

    Args:
        call: what is called.
        subject: through what.
        shared: what a shared subject compiled for earlier calls, which this one adds to.
    """
    if subject.programs is not None and isinstance(call, Call):
        return _compare_resized(call, subject, subject.programs)
    run: Callable[[], Effects]
    if isinstance(call, Steps):
        expected = effects_of_steps(call, lambda step: step)
        run = functools.partial(effects_of_steps, call, subject.compile)
    else:
        expected = effects(call, called(call.function))
        function, compiled = _compiled(call.function, subject, {} if shared is None else shared)
        run = functools.partial(effects, call, function, compiled)
    said: list[str] = []
    frames = torch._dynamo.utils.counters["hostjit"]
    left = frames[FRAMES_LEFT]
    for name, context in subject.runs:
        with context(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = run()
        said += [str(warning.message).split("\n")[0] for warning in caught]
        if isinstance(found.error, hostjit.CaptureError):
            return Finding(REFUSED, str(found.error).split("\n")[0])
        kind, difference = _difference(found, expected, call)
        if kind:
            return Finding(kind, f"{name}: {difference}")
    eagerly = [message for message in said if message.startswith("hostjit:")]
    eagerly += [FRAMES_LEFT] * (frames[FRAMES_LEFT] - left)
    # What raises has nothing to compile.
    return Finding(EAGERLY, eagerly[0]) if eagerly and expected.error is None else Finding()


def _compare_resized(call: Call, subject: Subject, programs: Callable[[Any], int]) -> Finding:
    """Compare the call and those like it with other sizes; one program serves any size."""
    once = dataclasses.replace(subject, shared=True, programs=None)
    eagerly = Finding()
    for others in resized(call) or [[]]:
        shared: Shared = {}
        for index, each in enumerate((call, *others)):
            found = compare(each, once, shared)
            sizes = [tuple(x.shape) for x in tree_leaves(each.args) if hasattr(x, "shape")]
            _, compiled = shared[call.function]
            if found.kind == EAGERLY:
                eagerly = found
            elif found.kind:
                return Finding(found.kind, f"sizes {sizes}: {found.message}")
            elif not eagerly.kind and programs(compiled) > min(index + 1, 2):
                return Finding(PER_SIZE, f"a program for sizes {sizes}")
    return eagerly


def _compiled(
    function: Callable[..., Any], subject: Subject, shared: Shared
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what of a function is compiled, and what the subject makes of it."""
    if function in shared:
        return shared[function]
    what = called(function)
    made = what, subject.compile(what)
    if subject.shared:
        shared[function] = made
    return made


def _difference(found: Effects, expected: Effects, call: Call | Steps) -> tuple[str, str]:
    """Return the kind and the description of the first difference, both empty without one."""
    if found.error is not None or expected.error is not None:
        if type(found.error) is type(expected.error):
            return "", ""
        return RAISES, f"{_name(found.error)} instead of {_name(expected.error)}"
    structure = _structure_difference(found, expected)
    if structure:
        return DIFFERS, structure
    if isinstance(call, Steps):
        values = _value_difference(found, expected, None)
    elif call.uninitialised:
        return "", ""
    else:
        values = _value_difference(found, expected, call.tolerance)
        if values and not _eager_agrees_with_itself(expected, call):
            return "", ""
    if not values:
        return "", ""
    if _no_farther_from_exact(found, expected, call):
        return "", ""
    return DIFFERS, values


def _name(error: Exception | None) -> str:
    if error is None:
        return "a result"
    return f"{type(error).__name__} ({str(error).splitlines()[0] if str(error) else ''})"


def _structure_difference(found: Effects, expected: Effects) -> str:
    leaves, tree = tree_flatten(found.result)
    expected_leaves, expected_tree = tree_flatten(expected.result)
    if tree != expected_tree or type(found.result) is not type(expected.result):
        return f"result has structure {tree}, expected {expected_tree}"
    for index, (a, b) in enumerate(zip(leaves, expected_leaves, strict=True)):
        where = f"result {index}" if len(leaves) > 1 else "result"
        if type(a) is not type(b):
            return f"{where} is a {type(a).__name__}, expected a {type(b).__name__}"
        if isinstance(a, torch.Tensor) and _facts(a) != _facts(b):
            return f"{where} has {_first_unequal(_facts(a), _facts(b))}"
    for index, (a, b) in enumerate(zip(found.tensors, expected.tensors, strict=True)):
        if _facts(a) != _facts(b):
            return f"argument tensor {index} has {_first_unequal(_facts(a), _facts(b))} afterwards"
    gradients = [_types(found.gradients), _types(expected.gradients)]
    if gradients[0] != gradients[1]:
        return f"gradients have types {gradients[0]}, expected {gradients[1]}"
    if _sharing(found) != _sharing(expected):
        return f"memory is shared as {_sharing(found)}, expected {_sharing(expected)}"
    return ""


def _facts(tensor: torch.Tensor) -> dict[str, Any]:
    names = ("dtype", "device", "shape", "layout", "requires_grad")
    facts: dict[str, Any] = {name: getattr(tensor, name) for name in names}
    if tensor.layout is torch.strided and not tensor.is_nested:
        facts["strides"] = tensor.stride()
        facts["conjugate bit"] = tensor.is_conj()
        facts["negative bit"] = tensor.is_neg()
    return facts


def _types(gradients: Sequence[torch.Tensor | None]) -> list[Any]:
    """What gradients are, save their strides: autograd promises none."""
    return [x if x is None else (x.dtype, tuple(x.shape), x.layout) for x in gradients]


def _first_unequal(found: dict[str, Any], expected: dict[str, Any]) -> str:
    name = next(name for name, value in found.items() if value != expected.get(name))
    return f"{name} {found[name]}, expected {expected.get(name)}"


def _sharing(outcome: Effects) -> list[str]:
    """Which tensor each result is, or which it shares memory with, arguments before results."""
    results = [leaf for leaf in tree_flatten(outcome.result)[0] if isinstance(leaf, torch.Tensor)]
    arguments = outcome.tensors
    known: dict[int, str] = {}
    for index, tensor in enumerate(arguments):
        known.setdefault(_storage(tensor), f"argument {index}")
    found = []
    for index, tensor in enumerate(results):
        same = [f"is argument {i}" for i, other in enumerate(arguments) if other is tensor]
        owner = known.setdefault(_storage(tensor), f"result {index}")
        if same:
            found.append(same[0])
        elif owner == f"result {index}":
            found.append("new")
        else:
            found.append(f"{owner} at {tensor.storage_offset()}")
    return found


def _storage(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory; tensors that have none of their own have a number each."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return id(tensor)
    return int(tensor.untyped_storage()._cdata)


def _value_difference(
    found: Effects, expected: Effects, tolerance: tuple[float, float] | None
) -> str:
    options: dict[str, Any] = {"equal_nan": True}
    if tolerance is not None:
        options |= {"rtol": tolerance[0], "atol": tolerance[1]}
    pairs = [
        ("result", found.result, expected.result),
        ("argument", found.tensors, expected.tensors),
        ("gradient", found.gradients, expected.gradients),
    ]
    for what, a, b in pairs:
        for index, (x, y) in enumerate(zip(tree_flatten(a)[0], tree_flatten(b)[0], strict=True)):
            if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
                try:
                    _assert_close(x, y, options)
                except AssertionError as error:
                    return f"{what} {index}: {' '.join(str(error).split())[:160]}"
            elif x != y and not (x != x and y != y):
                return f"{what} {index} is {x!r}, expected {y!r}"
    return ""


def _assert_close(found: torch.Tensor, expected: torch.Tensor, options: dict[str, Any]) -> None:
    try:
        torch.testing.assert_close(found, expected, **options)
    except AssertionError:
        if options.keys() == {"equal_nan"}:
            raise
        # The database's tolerance may be the stricter one.
        torch.testing.assert_close(found, expected, equal_nan=True)


def _eager_agrees_with_itself(expected: Effects, call: Call) -> bool:
    return not any(
        _value_difference(effects(call, called(call.function)), expected, call.tolerance)
        for _ in range(_EAGER_RUNS)
    )


def _no_farther_from_exact(found: Effects, expected: Effects, call: Call | Steps) -> bool:
    """Tell whether results of half precision are as close to those of float64 as eager's are."""
    ours, eager = _floats(found), _floats(expected)
    if not any(tensor.dtype in _HALVES for tensor in ours):
        return False
    exact = _exact(call, expected)
    if exact.error is not None:
        return False
    return all(
        _error(x, z) <= _error(y, z) or torch.equal(x, y)
        for x, y, z in zip(ours, eager, _floats(exact), strict=True)
    )


def _exact(call: Call | Steps, expected: Effects) -> Effects:
    """Call in float64, with the gradients of the results that `expected` follows from."""
    if isinstance(call, Steps):
        return effects_of_steps(call.in_float64(), lambda step: step)
    function = call.function
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()
    args, kwargs = tree_map(_widened, (call.args, call.kwargs))
    wide = dataclasses.replace(call, function=function, args=args, kwargs=kwargs)
    return effects(wide, called(function), given=tree_map(_widened, expected.given))


def _floats(outcome: Effects) -> list[torch.Tensor]:
    leaves = tree_flatten((outcome.result, outcome.tensors, outcome.gradients))[0]
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]


def _widened(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype not in _HALVES:
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _error(tensor: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest distance, infinite where one of them is no number."""
    distance = (tensor.double() - exact.double()).abs()
    distance[tensor.double() == exact.double()] = 0
    distance[tensor.isnan() & exact.isnan()] = 0
    return float(distance.nan_to_num(nan=float("inf")).max()) if distance.numel() else 0.0
