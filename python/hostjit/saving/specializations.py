# SPDX-License-Identifier: Apache-2.0
"""A specialization as JSON: what `_C.Specialization.describe` says, and how to make it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.saving.arguments import (
    ExampleCall,
    arguments_to_json,
    arguments_to_text,
    number_positions,
)
from hostjit.saving.modes import in_modes, modes_to_json, modes_to_text, process_modes
from hostjit.saving.numbers import made_from_json, made_to_json
from hostjit.saving.programs import ProgramWriter
from hostjit.saving.results import result_from_json, result_to_json
from hostjit.saving.tensors import TensorWriter
from hostjit.saving.values import Classes, Values, float_from_bits, float_to_bits
from hostjit.size_condition import SizeCondition

__all__ = [
    "signature",
    "signature_of",
    "specialization_from_json",
    "specialization_to_json",
]

# What must be the same of a specialization and of what is made of its description.
_COMPARED = (
    "modes",
    "arguments",
    "numbers",
    "mutated",
    "identities",
    "runtime",
    "guarded",
    "results",
)


def signature(described: dict[str, Any]) -> str:
    """Return the calls that a specialization answers, in words."""
    text = arguments_to_text(described["arguments"])
    return f"{text}, {modes_to_text(described['modes'])}"


def signature_of(specialization: _C.Specialization) -> str:
    """Return the same of one that is described; raises hostjit.Error where it can't be."""
    facts = specialization.describe()
    arguments = arguments_to_json(facts["arguments"], Values())
    return signature({"arguments": arguments, "modes": modes_to_json(facts["modes"])})


def specialization_to_json(
    specialization: _C.Specialization, programs: ProgramWriter, tensors: TensorWriter
) -> dict[str, Any]:
    """Write a specialization; raises hostjit.Error that says why it can't be."""
    facts = specialization.describe()
    values = Values()
    modes = modes_to_json(facts["modes"])
    arguments = arguments_to_json(facts["arguments"], values)
    what = signature({"arguments": arguments, "modes": modes})
    try:
        described = _to_json(specialization, facts, arguments, modes, programs, tensors, values)
        _check_same(specialization, described, tensors, values)
    except _C.Error as error:
        raise _C.Error(f"{what}: {error}") from None
    return described


def _to_json(
    specialization: _C.Specialization,
    facts: dict[str, Any],
    arguments: dict[str, Any],
    modes: dict[str, Any],
    programs: ProgramWriter,
    tensors: TensorWriter,
    values: Values,
) -> dict[str, Any]:
    program = specialization.program
    if facts["route"] is not None or program is None:
        reason = facts["reason"] or "it runs eagerly"
        raise _C.Error(f"its calls run Python code, which no file can hold: {reason}")
    if facts["always_revalidate"]:
        raise _C.Error("what it read can't be watched, and is looked at again at every call")
    numbers, num_items = facts["numbers"]
    if facts["stores"]:
        raise _C.Error("its calls change what objects of this process keep")
    if num_items:
        raise _C.Error("it reads numbers that objects of this process keep")
    if facts["condition"] is not None:
        raise _C.Error("what it read of tensors, or their gradients, is compared by Python code")
    if facts["retries"]:
        raise _C.Error("its Python code, which no file can hold, handles errors of operators")
    if facts["static_leaves"]:
        raise _C.Error("some of its inputs are static: in memory of this process")
    if facts["row_guard"] is not None and not isinstance(facts["row_guard"], SizeCondition):
        raise _C.Error("what it assumes of sizes is a Python function")
    # Anchors are ids of tensors that the bindings or the result keep alive; others are gone or
    # can't be reached by callers of what is loaded.
    described = {
        "arguments": arguments,
        "modes": modes,
        "program": programs.add(program),
        "bindings": [_binding_to_json(binding, tensors) for binding in facts["bindings"]],
        "result": result_to_json(facts["output"], tensors, values),
        "mutated": facts["mutated"],
        "same_as": facts["identities"]["same_as"],
        "all_count": facts["identities"]["all_count"],
        "runtime": facts["runtime"],
        "reuse_outputs": facts["reuse_outputs"],
        "numbers": [
            [is_float, *(float_to_bits(bound) if is_float else bound for bound in bounds), value]
            for is_float, *bounds, value in numbers
        ],
        "made": made_to_json(facts["results"], values),
        "guarded": facts["guarded"],
        "condition": _condition_to_json(facts["row_guard"]),
        "backward": None,
    }
    backward = specialization.backward
    if backward is not None:
        described["backward"] = {
            **_backward_to_json(facts["backward"], tensors),
            "program": programs.add(backward.program),
        }
    by_id = {id(tensor): number for number, tensor in enumerate(tensors.tensors)}
    anchors = facts["identities"]["anchors"]
    unknown = [leaf for leaf, address in anchors if address not in by_id]
    if unknown:
        raise _C.Error(
            f"tensor {unknown[0]} of the arguments is one that the program met elsewhere, too, and "
            "which is not part of it"
        )
    described["anchors"] = [[leaf, by_id[address]] for leaf, address in anchors]
    return described


def _binding_to_json(binding: Any, tensors: TensorWriter) -> Any:
    if isinstance(binding, int):
        return binding
    if isinstance(binding, torch.Tensor):
        return ["tensor", tensors.add(binding)]
    if binding[0] == "open":
        return ["open", binding[1]]
    raise _C.Error("it is the step of an optimizer, which reads the optimizer's state")


def _condition_to_json(condition: SizeCondition | None) -> dict[str, Any] | None:
    if condition is None:
        return None
    SizeCondition.parse(condition.names, condition.text)  # can be read
    return {"names": list(condition.names), "text": condition.text}


def _backward_to_json(facts: dict[str, Any], tensors: TensorWriter) -> dict[str, Any]:
    inputs: list[Any] = []
    for source in facts["inputs"]:
        if isinstance(source, torch.Tensor):
            inputs.append(["tensor", tensors.add(source)])
        else:
            inputs.append(None if source is None else list(source))
    used = [source[1] for source in inputs if source and source[0] == "saved"]
    # Behind those are what second derivatives need, which are Python's.
    saved = [list(source) for source in facts["saved"][: max(used, default=-1) + 1]]
    return {**facts, "inputs": inputs, "saved": saved}


def specialization_from_json(
    described: dict[str, Any],
    programs: Sequence[_C.CompiledProgram],
    tensors: Sequence[torch.Tensor],
    classes: Classes,
) -> _C.Specialization:
    """Make a specialization; raises whatever a description that nobody wrote leads to."""
    values = Values(classes)
    given = {leaf: tensors[number] for leaf, number in described["anchors"]}
    call = ExampleCall(described["arguments"], values, described["same_as"], given)
    bindings = [_binding_from_json(binding, tensors) for binding in described["bindings"]]
    output = result_from_json(described["result"], tensors, values)
    program = programs[described["program"]]
    condition = described["condition"]
    program.check(_inputs(bindings, call, described))
    with in_modes(described["modes"]):
        return _C.Specialization(
            args=call.args,
            kwargs=call.kwargs,
            program=program,
            bindings=bindings,
            output=output,
            mutated=described["mutated"],
            runtime=described["runtime"],
            reuse_outputs=described["reuse_outputs"],
            numbers=_numbers_from_json(described),
            results=made_from_json(described["made"], values),
            row_guard=condition and SizeCondition.parse(condition["names"], condition["text"]),
            guarded=described["guarded"],
            backward=_backward_from_json(described["backward"], program, programs, tensors),
            outside=_outside(described, tensors) if described["all_count"] else None,
            process_modes=process_modes(described["modes"]),
        )


def _binding_from_json(binding: Any, tensors: Sequence[torch.Tensor]) -> Any:
    match binding:
        case ["tensor", number]:
            return tensors[number]
        case ["open", slot]:
            return ("open", slot)
    return binding


def _inputs(bindings: Sequence[Any], call: ExampleCall, described: dict[str, Any]) -> list[Any]:
    """What the inputs of the program are at the example call."""
    found: list[Any] = []
    for binding in bindings:
        if isinstance(binding, int):
            found.append(call.tensors[binding])
        elif isinstance(binding, torch.Tensor):
            found.append(binding)
        else:
            found.append(0.0 if described["numbers"][binding[1]][0] else 0)
    return found


def _numbers_from_json(described: dict[str, Any]) -> list[tuple[Any, ...]]:
    positions = number_positions(described["arguments"])
    numbers: list[tuple[Any, ...]] = []
    for slot, (is_float, *bounds, value) in enumerate(described["numbers"]):
        limits = [float_from_bits(bound) if is_float else bound for bound in bounds]
        place = (positions[slot],) if value is None else ("value", value)
        numbers.append((float if is_float else int, *limits, *place))
    return numbers


def _backward_from_json(
    described: dict[str, Any] | None,
    forward: _C.CompiledProgram,
    programs: Sequence[_C.CompiledProgram],
    tensors: Sequence[torch.Tensor],
) -> _C.BackwardPlan | None:
    if described is None:
        return None

    def read(source: Any) -> Any:
        if source is None:
            return None
        return tensors[source[1]] if source[0] == "tensor" else tuple(source)

    return _C.BackwardPlan(
        forward=forward,
        backward=programs[described["program"]],
        num_results=described["num_results"],
        differentiable=described["differentiable"],
        saved=[tuple(source) for source in described["saved"]],
        inputs=[read(source) for source in described["inputs"]],
        gradients=described["gradients"],
        reached=described["reached"],
        runtime=described["runtime"],
    )


def _outside(described: dict[str, Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors outside of the arguments that a caller may have."""
    found: dict[int, torch.Tensor] = {}

    def visit(node: Any) -> None:
        if isinstance(node, list):
            if len(node) == 2 and node[0] == "tensor" and isinstance(node[1], int):
                found[node[1]] = tensors[node[1]]
            for child in node:
                visit(child)

    visit(described["bindings"])
    visit(described["result"])
    return list(found.values())


def _check_same(
    specialization: _C.Specialization,
    described: dict[str, Any],
    tensors: TensorWriter,
    values: Values,
) -> None:
    """Make it again, here, and compare what it checks of a call: nothing may be lost."""
    assert specialization.program is not None
    programs = {described["program"]: specialization.program}
    if specialization.backward is not None:
        programs[described["backward"]["program"]] = specialization.backward.program
    by_number = [programs.get(number) for number in range(max(programs) + 1)]
    classes = Classes(values.met)
    made = specialization_from_json(described, by_number, tensors.tensors, classes)  # type: ignore[arg-type]
    before, after = specialization.describe(), made.describe()
    for name in _COMPARED:
        if before[name] != after[name]:
            raise _C.Error(f"the {name} of its calls can't be described")
    if not specialization.program.symbols and before["guards"] != after["guards"]:
        raise _C.Error("the tensors that it holds can't be described")
