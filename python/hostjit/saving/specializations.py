# SPDX-License-Identifier: Apache-2.0
"""A specialization as JSON: what `_C.Specialization.describe` says, and how to make it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from hostjit import _C
from hostjit.capturing.guards.size_condition import SizeCondition
from hostjit.saving.arguments import (
    ExampleCall,
    arguments_to_json,
    number_positions,
)
from hostjit.saving.backward import backward_from_json, backward_to_json
from hostjit.saving.bindings import (
    Parts,
    Writers,
    binding_from_json,
    binding_to_json,
    example_inputs,
)
from hostjit.saving.made_numbers import made_from_json, made_to_json
from hostjit.saving.modes import in_modes, modes_to_json, process_modes
from hostjit.saving.results import result_from_json, result_to_json
from hostjit.saving.signatures import signature
from hostjit.saving.values import Classes, Values, float_from_bits, float_to_bits

if TYPE_CHECKING:
    from hostjit.saving.replays import LoadedReplay

__all__ = ["replay_of", "specialization_from_json", "specialization_to_json"]

# What must be the same of a specialization and of what is made of its description.
_COMPARED = (
    "modes",
    "arguments",
    "objects",
    "numbers",
    "mutated",
    "identities",
    "runtime",
    "guarded",
    "in_inference_mode",
    "results",
)


def specialization_to_json(
    specialization: _C.Specialization, facts: dict[str, Any], writers: Writers
) -> dict[str, Any]:
    """Write a specialization, which `facts` describe; raises hostjit.Error if it can't be."""
    values = Values()
    modes = modes_to_json(facts["modes"])
    arguments = arguments_to_json(facts["arguments"], values)
    what = signature({"arguments": arguments, "modes": modes})
    try:
        described = _to_json(specialization, facts, arguments, modes, writers, values)
        _check_same(specialization, facts, described, writers, values)
    except _C.Error as error:
        raise _C.Error(f"{what}: {error}") from None
    return described


def _to_json(
    specialization: _C.Specialization,
    facts: dict[str, Any],
    arguments: dict[str, Any],
    modes: dict[str, Any],
    writers: Writers,
    values: Values,
) -> dict[str, Any]:
    program = specialization.program
    if facts["route"] is not None or program is None:
        reason = facts["reason"] or "it runs eagerly"
        raise _C.Error(f"its calls run Python code, which no file can hold: {reason}")
    from hostjit.saving.replays import checks_to_json

    replay = replay_of(facts)
    checks = None if replay is None else replay.checks
    if facts["always_revalidate"] and replay is None:
        raise _C.Error("what it read can't be watched, and is looked at again at every call")
    if facts["stores"]:
        raise _C.Error("its calls change what objects of this process keep")
    if facts["retries"]:
        raise _C.Error("its Python code, which no file can hold, handles errors of operators")
    if facts["condition"] is not checks and facts["condition"] is not None:
        raise _C.Error("its calls are compared by Python code that is no recording's")
    if facts["row_guard"] is not None and not isinstance(facts["row_guard"], SizeCondition):
        raise _C.Error("what it assumes of sizes is a Python function")
    programs, tensors = writers.programs, writers.tensors
    numbers = facts["numbers"]
    places = writers.numbers.places_of(facts["number_places"])
    guarded_bindings = zip(facts["bindings"], facts["guards"], strict=True)
    # Anchors are ids of tensors that the bindings or the result keep alive; others are gone or
    # can't be reached by callers of what is loaded.
    described = {
        "arguments": arguments,
        "first_of": facts["objects"],
        "modes": modes,
        "program": programs.add(program),
        "bindings": [
            binding_to_json(binding, guard, writers) for binding, guard in guarded_bindings
        ],
        "result": result_to_json(facts["output"], tensors, values),
        "mutated": facts["mutated"],
        "same_as": facts["identities"]["same_as"],
        "all_count": facts["identities"]["all_count"],
        "runtime": facts["runtime"],
        "reuse_outputs": facts["reuse_outputs"],
        "in_inference_mode": facts["in_inference_mode"],
        "numbers": [
            {
                "bounds": [float_to_bits(x) if is_float else x for x in bounds],
                "is_float": is_float,
                "made": made,
                "place": places.get(slot),
            }
            for slot, (is_float, *bounds, made) in enumerate(numbers)
        ],
        "made": made_to_json(facts["results"], values),
        "guarded": facts["guarded"],
        "condition": _condition_to_json(facts["row_guard"]),
        "gradients": [
            [tensors.add_with_gradient(tensor), has] for tensor, has in facts["gradients"]
        ],
        "checks": checks and checks_to_json(checks, writers),
        "leaf_checks": getattr(facts["revalidate"], "leaf_checks", []),
        "static": [leaf for leaf, _ in facts["static_leaves"]],
        "aligned": [binding_to_json(place, None, writers) for place in facts["aligned"]],
        "backward": None,
    }
    backward = specialization.backward
    if backward is not None:
        described["backward"] = {
            **backward_to_json(facts["backward"], tensors),
            "program": programs.add(backward.program),
        }
    described["anchors"] = []
    for leaf, address in facts["identities"]["anchors"]:
        number = tensors.add_by_id(address)
        if number is None:
            raise _C.Error(
                f"tensor {leaf} of the arguments is one that the program met elsewhere, too, and "
                "that has no name"
            )
        described["anchors"].append([leaf, number])
    return described


class _Loaded:
    """In place of what would look again at what a loaded program assumes: no file holds that.

    Attributes:
        leaf_checks: what has to hold of leaves: kinds and numbers of leaves.
    """

    def __init__(self, leaf_checks: Sequence[tuple[str, int]]) -> None:
        self.leaf_checks = [(str(kind), int(leaf)) for kind, leaf in leaf_checks]

    def __call__(self, *_: Any) -> None:
        return None


def replay_of(facts: dict[str, Any]) -> Any:
    """Return the recording, or what was loaded of it, that a specialization replays; else None."""
    replay = getattr(facts["revalidate"], "__self__", None)
    return replay if hasattr(replay, "checks") else None


def _condition_to_json(condition: SizeCondition | None) -> dict[str, Any] | None:
    if condition is None:
        return None
    SizeCondition.parse(condition.names, condition.text)  # can be read
    return {"names": list(condition.names), "text": condition.text}


def specialization_from_json(
    described: dict[str, Any], parts: Parts
) -> tuple[_C.Specialization, LoadedReplay | None]:
    """Make a specialization, and what looks at calls for it, if anything has to.

    Raises whatever a description that nobody wrote leads to.
    """
    values, tensors = Values(parts.classes), parts.tensors
    given = {leaf: tensors[number] for leaf, number in described["anchors"]}
    call = ExampleCall(
        described["arguments"], values, described["same_as"], given, described["first_of"]
    )
    bindings = [binding_from_json(binding, parts) for binding in described["bindings"]]
    output = result_from_json(described["result"], tensors, values)
    program = parts.programs[described["program"]]
    condition = described["condition"]
    is_float = [bool(number["is_float"]) for number in described["numbers"]]
    program.check(example_inputs(bindings, call, is_float))
    numbers = _numbers_from_json(described, parts)
    outside = _outside(described, tensors) if described["all_count"] else None
    replay = _replay_from_json(described, parts, bindings, numbers, outside, call)
    loaded = _Loaded(described["leaf_checks"])
    with in_modes(described["modes"]):
        made = _C.Specialization(
            args=call.args,
            kwargs=call.kwargs,
            program=program,
            bindings=bindings,
            output=output,
            watches=[] if replay is None else replay.watches(),
            revalidate=loaded if replay is None else replay.revalidate,
            mutated=described["mutated"],
            runtime=described["runtime"],
            reuse_outputs=described["reuse_outputs"],
            in_inference_mode=bool(described["in_inference_mode"]),
            numbers=numbers,
            results=made_from_json(described["made"], values),
            row_guard=condition and SizeCondition.parse(condition["names"], condition["text"]),
            guarded=described["guarded"],
            backward=backward_from_json(described["backward"], program, parts.programs, tensors),
            outside=outside,
            condition=None if replay is None else replay.checks.condition(),
            leaf_checks=[
                *loaded.leaf_checks,
                *([] if replay is None else replay.checks.leaf_checks()),
            ],
            reads=None if replay is None else replay.checks.compiled_reads,
            static_leaves=[(int(leaf), None) for leaf in described["static"]],
            aligned=[binding_from_json(place, parts) for place in described["aligned"]],
            process_modes=process_modes(described["modes"]),
            by_fields=call.compared.described(),
        )
    return made, replay


def _replay_from_json(
    described: dict[str, Any],
    parts: Parts,
    bindings: Sequence[Any],
    numbers: Sequence[Any],
    outside: Sequence[torch.Tensor] | None,
    call: ExampleCall,
) -> LoadedReplay | None:
    optimizers = parts.optimizers if described["mutated"] else ()
    if described["checks"] is None and not described["gradients"] and not optimizers:
        return None
    from hostjit.recording.replays.checks import ReplayChecks
    from hostjit.saving.replays import LoadedReplay, checks_from_json

    checks = ReplayChecks()
    if described["checks"] is not None:
        checks = checks_from_json(described["checks"], parts, call.by_fields)
    gradients = [
        (parts.tensors[number], parts.name_of(number), bool(has))
        for number, has in described["gradients"]
    ]
    held = _outside(described, parts.tensors)
    return LoadedReplay(
        checks, gradients, bindings, numbers, outside, call.tensors, optimizers, held
    )


def _numbers_from_json(described: dict[str, Any], parts: Parts) -> list[tuple[Any, ...]]:
    positions = number_positions(described["arguments"])
    numbers: list[tuple[Any, ...]] = []
    for slot, number in enumerate(described["numbers"]):
        is_float, made, place = number["is_float"], number["made"], number["place"]
        limits = [float_from_bits(x) if is_float else x for x in number["bounds"]]
        if made is not None:
            where: tuple[Any, ...] = ("value", made)
        else:
            where = (positions[slot],) if place is None else parts.places[place]
        numbers.append((float if is_float else int, *limits, *where))
    return numbers


def _outside(described: dict[str, Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors outside of the arguments that a caller may have."""
    found: dict[int, torch.Tensor] = {}

    def visit(node: Any) -> None:
        if isinstance(node, list):
            if len(node) > 1 and node[0] in ("tensor", "gradient") and isinstance(node[1], int):
                found[node[1]] = tensors[node[1]]
            for child in node:
                visit(child)

    visit(described["bindings"])
    visit(described["result"])
    others = [number for number, _ in described["gradients"]]
    others += [number for _, number in described["anchors"]]
    found.update({number: tensors[number] for number in others})
    return list(found.values())


def _check_same(
    specialization: _C.Specialization,
    before: dict[str, Any],
    described: dict[str, Any],
    writers: Writers,
    values: Values,
) -> None:
    """Make it again, here, and compare what it checks of a call: nothing may be lost."""
    assert specialization.program is not None
    parts = Parts(
        writers.programs.programs,
        writers.tensors.tensors,
        writers.tensors.described,
        frozenset(),
        writers.numbers.places,
        Classes(values.met),
    )
    made, _ = specialization_from_json(described, parts)
    after = made.describe()
    for name in _COMPARED:
        if before[name] != after[name]:
            raise _C.Error(f"the {name} of its calls can't be described")
    if _gradients(before) != _gradients(after):
        raise _C.Error("the gradients that its calls are compared by can't be described")
    if not specialization.program.symbols and before["guards"] != after["guards"]:
        raise _C.Error("the tensors that it holds can't be described")


def _gradients(facts: dict[str, Any]) -> list[tuple[int, bool]]:
    return [(id(tensor), has) for tensor, has in facts["gradients"]]
