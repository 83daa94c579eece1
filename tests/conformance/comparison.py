# SPDX-License-Identifier: Apache-2.0
"""Compare a call of a compiled operator with eager's: all that a caller can see.

That is: the structure, types and values of the result, dtypes, strides and layouts of its tensors,
which arguments they share memory with and at which offset, what became of the arguments, or the
class of the exception.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

import hostjit
from conformance.cases import Call, seed_everything
from conformance.subjects import Subject

__all__ = ["DIFFERS", "REFUSED", "Finding", "compare"]

REFUSED = "refused"
DIFFERS = "differs"
RAISES = "raises"
# How often eager is asked whether it agrees with itself.
_EAGER_RUNS = 3


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one call showed.

    Attributes:
        kind: "" when all agrees, else REFUSED, DIFFERS or RAISES.
        message: in one line.
        eagerly: the subject said that it ran the call eagerly.
    """

    kind: str = ""
    message: str = ""
    eagerly: bool = False


@dataclasses.dataclass
class _Effects:
    """A call's result or exception, and its arguments as they are afterwards."""

    result: Any
    arguments: Any
    error: Exception | None


def compare(call: Call, subject: Subject) -> Finding:
    """Call eagerly, then in every run of the subject, on equal arguments from equal seeds."""
    expected = _effects(call.function, call)
    function = subject.compile(_plain_function(call.function))
    eagerly = False
    for name, context in subject.runs:
        with context(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = _effects(function, call)
        eagerly |= any(str(warning.message).startswith("hostjit:") for warning in said)
        if isinstance(found.error, hostjit.CaptureError):
            return Finding(REFUSED, str(found.error).split("\n")[0])
        kind, difference = _difference(found, expected, call)
        if kind:
            return Finding(kind, f"{name}: {difference}", eagerly)
    return Finding(eagerly=eagerly)


def _plain_function(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Operators are builtins, methods, overloads and lambdas: what users compile calls them."""

    def call_operator(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return call_operator


def _effects(function: Callable[..., Any], call: Call) -> _Effects:
    args, kwargs = arguments = _copied((call.args, call.kwargs))
    seed_everything()
    with torch.no_grad():
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            return _Effects(None, arguments, error)
    return _Effects(result, arguments, None)


def _copied(arguments: Any) -> Any:
    """Copy arguments with their strides, offsets, and what memory they share."""
    try:
        return copy.deepcopy(arguments)
    except NotImplementedError:  # compressed sparse tensors
        return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, arguments)


def _difference(found: _Effects, expected: _Effects, call: Call) -> tuple[str, str]:
    """Return the kind and the description of the first difference, both empty without one."""
    if found.error is not None or expected.error is not None:
        if type(found.error) is type(expected.error):
            return "", ""
        return RAISES, f"{_name(found.error)} instead of {_name(expected.error)}"
    structure = _structure_difference(found, expected)
    if structure:
        return DIFFERS, structure
    if call.uninitialised:
        return "", ""
    values = _value_difference(found, expected, call.tolerance)
    if values and _eager_agrees_with_itself(expected, call):
        return DIFFERS, values
    return "", ""


def _name(error: Exception | None) -> str:
    if error is None:
        return "a result"
    return f"{type(error).__name__} ({str(error).splitlines()[0] if str(error) else ''})"


def _structure_difference(found: _Effects, expected: _Effects) -> str:
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
    for index, (a, b) in enumerate(zip(_tensors(found), _tensors(expected), strict=True)):
        if _facts(a) != _facts(b):
            return f"argument tensor {index} has {_first_unequal(_facts(a), _facts(b))} afterwards"
    if _sharing(found) != _sharing(expected):
        return f"memory is shared as {_sharing(found)}, expected {_sharing(expected)}"
    return ""


def _facts(tensor: torch.Tensor) -> dict[str, Any]:
    facts: dict[str, Any] = {
        name: getattr(tensor, name) for name in ("dtype", "shape", "layout", "requires_grad")
    }
    if tensor.layout is torch.strided and not tensor.is_nested:
        facts["strides"] = tensor.stride()
        facts["conjugate bit"] = tensor.is_conj()
        facts["negative bit"] = tensor.is_neg()
    return facts


def _first_unequal(found: dict[str, Any], expected: dict[str, Any]) -> str:
    name = next(name for name, value in found.items() if value != expected.get(name))
    return f"{name} {found[name]}, expected {expected.get(name)}"


def _tensors(effects: _Effects) -> list[torch.Tensor]:
    leaves = tree_flatten(effects.arguments)[0]
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _sharing(effects: _Effects) -> list[str]:
    """Which tensor each result is, or which it shares memory with, arguments before results."""
    results = [leaf for leaf in tree_flatten(effects.result)[0] if isinstance(leaf, torch.Tensor)]
    arguments = _tensors(effects)
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
    found: _Effects, expected: _Effects, tolerance: tuple[float, float] | None
) -> str:
    options: dict[str, Any] = {"equal_nan": True}
    if tolerance is not None:
        options |= {"rtol": tolerance[0], "atol": tolerance[1]}
    pairs = [
        ("result", found.result, expected.result),
        ("argument", _tensors(found), _tensors(expected)),
    ]
    for what, a, b in pairs:
        for index, (x, y) in enumerate(zip(tree_flatten(a)[0], tree_flatten(b)[0], strict=True)):
            if isinstance(x, torch.Tensor):
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


def _eager_agrees_with_itself(expected: _Effects, call: Call) -> bool:
    return not any(
        _value_difference(_effects(call.function, call), expected, call.tolerance)
        for _ in range(_EAGER_RUNS)
    )
