# SPDX-License-Identifier: Apache-2.0
"""`hostjit.save`."""

from __future__ import annotations

import os
from typing import Any

import torch

from hostjit import _C
from hostjit.program_compilation import ProgramCompilation
from hostjit.saving.arguments import ExampleCall, arguments_to_json
from hostjit.saving.container import write
from hostjit.saving.loaded import LoadedFunction
from hostjit.saving.modes import in_modes, modes_to_json
from hostjit.saving.names import named_tensors
from hostjit.saving.programs import ProgramWriter
from hostjit.saving.specializations import signature_of, specialization_to_json
from hostjit.saving.tensors import TensorWriter
from hostjit.saving.values import Classes, Values

__all__ = ["save"]


def save(
    compiled: _C.CompiledFunction, path: str | os.PathLike[str], *, constants: bool = True
) -> None:
    """Write what is compiled of a function to a file, from which other processes call it.

    The file has, for each signature that was called: what is checked of the arguments, the Host IR
    program with its kernels, its object code, the backward pass if there is one; and once the
    tensors that these hold. No Python code: what the function read besides its arguments (numbers,
    flags, tables) is what it was when it was compiled.

    Args:
        compiled: what `hostjit.compile` returned, after a call of each signature to be saved; or a
            compiled Host IR program, called or not.
        path: of the file, which is replaced as a whole.
        constants: write the bytes of tensors that have a name: parameters, buffers, and those that
            the function finds in attributes, its closure or globals. Without, `hostjit.load` has to
            be given them. Tensors that its code makes of numbers are always part of the file.

    Raises:
        hostjit.Error: nothing is compiled; a signature runs Python code or eagerly, is the step of
            an optimizer, compares an argument with an object of this process, or has kernels that
            are not part of the program; what was compiled is not what the next call would run,
            because something changed since. The text says which signature, and why.
        OSError: the file can't be written.

    Example:
        fast = hostjit.compile(model)
        with torch.no_grad():
            fast(x)
        hostjit.save(fast, "model.hostjit")
    """
    if type(compiled) is not _C.CompiledFunction:
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
            tensors = TensorWriter(named_tensors(compiled), constants)
            for specialization in _current(compiled):
                described = specialization_to_json(specialization, programs, tensors)
                manifest["specializations"].append(described)
            manifest["tensors"] = tensors.described
            members.update(tensors.members)
    except _C.Error as error:
        raise _C.Error(f"'{_name(compiled)}' can't be saved: {error}") from None
    manifest["programs"] = programs.described
    write(path, manifest, {**programs.members, **members})


def _current(compiled: _C.CompiledFunction) -> list[_C.Specialization]:
    """Return the specializations that calls would run now, the one used last first.

    One that may be out of date is asked about by an example of its calls. Where another answers
    that, it is: a call would not run it.
    """
    found = compiled.specializations
    if not found:
        raise _C.Error("nothing is compiled yet: call it once with each signature")
    current = []
    for each in found:
        answer = each if each.holds() else _answer(compiled, each)
        if answer is None:
            raise _C.Error(
                f"{signature_of(each)}: something that it read is not what it was when that was "
                "compiled. Call it again with this signature, or drop what is compiled by forget()"
            )
        if answer is each:
            current.append(each)
    return current


def _answer(
    compiled: _C.CompiledFunction, specialization: _C.Specialization
) -> _C.Specialization | None:
    """Return what answers calls like those of a specialization that has to look again."""
    facts = specialization.describe()
    if facts["route"] is not None:
        return specialization  # why that can't be saved is said later
    values = Values()
    arguments = arguments_to_json(facts["arguments"], values)
    held = {id(tensor): tensor for tensor in facts["bindings"] if isinstance(tensor, torch.Tensor)}
    given = {leaf: held[key] for leaf, key in facts["identities"]["anchors"] if key in held}
    reader = Values(Classes(values.met))
    call = ExampleCall(arguments, reader, facts["identities"]["same_as"], given)
    with in_modes(modes_to_json(facts["modes"])):
        return compiled.match(*call.args, **call.kwargs)


def _name(compiled: _C.CompiledFunction) -> str:
    if isinstance(compiled.owner, LoadedFunction):
        return compiled.owner.__name__
    target = compiled.__wrapped__
    return str(getattr(target, "__qualname__", type(target).__qualname__))


def _version() -> str:
    from hostjit import __version__

    return __version__
