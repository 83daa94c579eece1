# SPDX-License-Identifier: Apache-2.0
"""`hostjit.save`."""

from __future__ import annotations

import os
import types
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.instances import is_a, name_of
from hostjit.compiling.program_compilation import ProgramCompilation
from hostjit.recording.calls.captured_method import CapturedMethod
from hostjit.saving.arguments import ExampleCall, arguments_to_json, classes_in
from hostjit.saving.bindings import Writers
from hostjit.saving.container import write
from hostjit.saving.loaded import LoadedFunction
from hostjit.saving.modes import in_modes, modes_to_json
from hostjit.saving.names import named
from hostjit.saving.numbers import NumberWriter
from hostjit.saving.programs import ProgramWriter
from hostjit.saving.signatures import signature_of
from hostjit.saving.specializations import replay_of, specialization_to_json
from hostjit.saving.tensors import TensorWriter
from hostjit.saving.values import Classes, Values

__all__ = ["save"]


def save(
    compiled: _C.CompiledFunction | types.MethodType | CapturedMethod,
    path: str | os.PathLike[str],
    *,
    constants: bool = True,
) -> None:
    """Write what is compiled of a function to a file, from which other processes call it.

    The file has, for each signature that was called: what is checked of a call, the Host IR program
    with its kernels, its object code, the backward pass if there is one; and once the tensors that
    these hold, with their gradients where they matter, and the numbers that they read at each call.
    No Python code: what the function read otherwise besides its arguments (flags, tables) is what
    it was when it was compiled.

    Args:
        compiled: what `hostjit.compile` or `hostjit.capture` returned, after a call of each
            signature to be saved, or a method of an object that is one; or a compiled Host IR
            program, called or not.
        path: of the file, which is replaced as a whole.
        constants: write the bytes of tensors that have a name: parameters, buffers, and those that
            the function finds in attributes, its closure or globals. Without, `hostjit.load` has to
            be given them. Tensors that its code makes of numbers are always part of the file.

    Raises:
        hostjit.Error: nothing is compiled; a signature runs Python code or eagerly, compares an
            argument with an object of this process, or has kernels that are not part of the
            program; what was compiled is not what the next call would run, because something
            changed since. The text says which signature, and why.
        OSError: the file can't be written.

    Example:
        fast = hostjit.compile(model)
        with torch.no_grad():
            fast(x)
        hostjit.save(fast, "model.hostjit")
    """
    if isinstance(compiled, CapturedMethod):
        compiled = types.MethodType(compiled.__func__, compiled.__self__)
    receiver = None
    holder: Any = compiled
    if isinstance(compiled, types.MethodType) and isinstance(
        compiled.__func__, _C.CompiledFunction
    ):
        compiled, receiver = compiled.__func__, compiled.__self__
    if not isinstance(compiled, _C.CompiledFunction):
        raise TypeError(
            f"hostjit.save takes a compiled function, got {type(compiled).__qualname__}"
        )
    owner = compiled.owner
    programs = ProgramWriter()
    manifest: dict[str, Any] = {
        "hostjit": _version(),
        "torch": str(torch.__version__),
        "host": _C.host_description(),
        "name": _name(compiled),
        "specializations": [],
        "tensors": [],
        "numbers": [],
        "optimizers": [],
        "program": None,
    }
    members: dict[str, Any] = {}
    try:
        if isinstance(owner, ProgramCompilation):
            manifest["program"] = {
                "number": programs.add(owner.compiled()),
                "runtime": owner.runtime,
                "reuse_outputs": owner.reuse_outputs,
            }
            members["source"] = str(owner.program).encode()
        else:
            names = named(holder)
            tensors = TensorWriter(names.tensors, constants)
            numbers = NumberWriter(names.numbers)
            writers = Writers(programs, tensors, numbers)
            for specialization, facts in _current(compiled, receiver):
                described = specialization_to_json(specialization, facts, writers)
                manifest["specializations"].append(described)
            manifest["tensors"] = tensors.described
            manifest["numbers"] = numbers.described
            if names.optimizers:
                from hostjit.saving.optimizers import optimizers_to_json

                known = {*map(id, tensors.tensors), *(id(holder) for holder, _ in numbers.places)}
                manifest["optimizers"] = optimizers_to_json(names.optimizers, known)
            members.update(tensors.members)
    except _C.Error as error:
        raise _C.Error(f"'{_name(compiled)}' can't be saved: {error}") from None
    manifest["programs"] = programs.described
    write(path, manifest, {**programs.members, **members})


def _current(
    compiled: _C.CompiledFunction, receiver: Any
) -> list[tuple[_C.Specialization, dict[str, Any]]]:
    """Return the specializations that calls would run now, the one used last first, described.

    One that may be out of date is asked about by an example of its calls. Where another answers
    that, it is: a call would not run it.
    """
    found: list[_C.Specialization] = []
    current: list[tuple[_C.Specialization, dict[str, Any]]] = []
    described = [(each, _facts(each, receiver)) for each in compiled.specializations]
    by_fields: set[type] = set()
    for _, facts in described:
        by_fields |= set() if facts is None else classes_in(facts["arguments"], "object")
    for each, facts in described:
        # Made for one object, before there were others.
        if facts is None or classes_in(facts["arguments"], "identity") & by_fields:
            continue
        if is_a(facts["route"], _C.CompiledFunction):  # another compiled function answers
            current += _current(facts["route"], receiver)
        else:
            found.append(each)
    if not found and not current:
        if any(_answers_for_all(each, receiver) for each in compiled.specializations):
            kind = type(receiver).__qualname__
            raise _C.Error(f"its program answers for any {kind}: compile the module itself")
        raise _C.Error("nothing is compiled yet: call it once with each signature")
    outdated: list[dict[str, Any]] = []
    for each in found:
        facts = _facts(each, receiver)
        assert facts is not None
        replay = replay_of(facts)
        if replay is not None:  # its conditions, which may not hold now, are part of the file
            if replay.is_current():
                current.append((each, facts))
            else:
                outdated.append(facts)
            continue
        answer = each if each.holds() else _answer(compiled, receiver, each, facts)
        if answer is None:
            raise _outdated(facts)
        if answer is each:  # which may have taken over what it found
            current.append((each, _facts(each, receiver) or facts))
    answered = {signature_of(facts) for _, facts in current} if outdated else set()
    for facts in outdated:
        if signature_of(facts) not in answered:
            raise _outdated(facts)
    return current


def _facts(specialization: _C.Specialization, receiver: Any) -> dict[str, Any] | None:
    """Describe a specialization, without the object of a method; None for calls of another's."""
    facts = specialization.describe()
    if receiver is not None:
        positional, named_nodes = facts["arguments"]
        if not positional or positional[0][0] != "identity" or positional[0][1] is not receiver:
            return None
        facts["arguments"] = (positional[1:], named_nodes)
    return facts


def _answers_for_all(specialization: _C.Specialization, receiver: Any) -> bool:
    """Tell whether the object of a method is compared by its fields, as modules are."""
    positional, _ = specialization.describe()["arguments"]
    return bool(positional) and positional[0] == ("module", type(receiver))


def _outdated(facts: dict[str, Any]) -> _C.Error:
    return _C.Error(
        f"{signature_of(facts)}: something that it read is not what it was when that was "
        "compiled. Call it again with this signature, or drop what is compiled by forget()"
    )


def _answer(
    compiled: _C.CompiledFunction,
    receiver: Any,
    specialization: _C.Specialization,
    facts: dict[str, Any],
) -> _C.Specialization | None:
    """Return what answers calls like those of a specialization that has to look again."""
    if facts["route"] is not None:
        return specialization  # why that can't be saved is said later
    values = Values()
    arguments = arguments_to_json(facts["arguments"], values)
    held = {id(tensor): tensor for tensor in facts["bindings"] if isinstance(tensor, torch.Tensor)}
    given = {leaf: held[key] for leaf, key in facts["identities"]["anchors"] if key in held}
    reader = Values(Classes(values.met))
    same_as = facts["identities"]["same_as"]
    call = ExampleCall(arguments, reader, same_as, given, facts["objects"])
    args = call.args if receiver is None else (receiver, *call.args)
    with in_modes(modes_to_json(facts["modes"])):
        return compiled.match(*args, **call.kwargs)


def _name(compiled: _C.CompiledFunction) -> str:
    if isinstance(compiled.owner, LoadedFunction):
        return compiled.owner.__name__
    target = compiled.__wrapped__
    return name_of(target)


def _version() -> str:
    from hostjit import __version__

    return __version__
