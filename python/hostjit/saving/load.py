# SPDX-License-Identifier: Apache-2.0
"""`hostjit.load`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from hostjit import _C
from hostjit.dynamo_import import without_dynamo
from hostjit.saving.arguments import classes_in
from hostjit.saving.bindings import Parts
from hostjit.saving.container import SavedFile, opened
from hostjit.saving.loaded import Answer, LoadedFunction, LoadedProgram
from hostjit.saving.names import Named, named
from hostjit.saving.numbers import NumberReader
from hostjit.saving.programs import ProgramReader
from hostjit.saving.signatures import conditions, signature
from hostjit.saving.specializations import specialization_from_json
from hostjit.saving.tensors import TensorReader
from hostjit.saving.values import Classes

__all__ = ["load"]

# What reading a description that is not as written leads to.
_MALFORMED = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    *(AssertionError, MemoryError, RuntimeError),
)


def load(
    path: str | os.PathLike[str],
    *,
    parameters: Mapping[str, torch.Tensor] | torch.nn.Module | None = None,
    target: Callable[..., Any] | None = None,
    classes: Iterable[type] = (),
    recompile: bool = False,
) -> _C.CompiledFunction:
    """Return a compiled function from a file that `hostjit.save` wrote.

    It answers calls of the signatures that were saved, with the same results; any other is a
    hostjit.Error that lists these. Its object code is linked as it is where this machine has the
    CPU, PyTorch and hostjit that it was made for, and compiled from the file's Host IR elsewhere.

    The file is a program: to call what was loaded runs its code, whatever that does. Load files
    from where you would load a shared library from. Loading itself imports and calls nothing of
    the file's, and checksums find damage, not intent.

    Args:
        path: of the file.
        parameters: what takes the place of what the file has, by reference: a module, an optimizer,
            a state_dict, or a dict of such and of tensors by the names that the function has for
            them. Dtypes, devices, sizes and strides have to be those that were saved. Such as do
            not need a gradient where the saved ones did (those of a state_dict) share their memory
            with new parameters that do. An optimizer has to make the steps that the saved one made,
            and to have made its state.
        target: what answers other calls: a callable to compile, or a compiled or captured function.
            Then what it holds takes the place of what the file has, by name.
        classes: of named tuples, dataclasses and enums that arguments or results have, if any.
            A file only names such; none is imported.
        recompile: compile the Host IR, and leave the object code of the file alone.

    Returns:
        A callable. `parameters` is a dict of the tensors that it holds, by name: written in place
        they change the next results; `numbers` a dict of those that it reads at each call and that
        nothing that was given has, to be changed; `signatures` are the calls that it answers, in
        words;
        `recompiled` says why the object code was not used, if so. `host_ir()`, `llvm_ir()`,
        `asm()` and `profile()` are as of `hostjit.compile`.

    Raises:
        hostjit.Error: the file is none of hostjit's, cut short, damaged, or of another format; it
            was saved without parameters that are not given, or what is given doesn't fit; it names
            a class that is not in `classes`; it needs a device that is not there.
        hostjit.MismatchError: at a call that differs from those that were recorded.
        OSError: the file can't be read.

    Example:
        fast = hostjit.load("model.hostjit")
        with torch.no_grad():
            y = fast(x)
    """
    if parameters is not None and target is not None:
        raise TypeError("hostjit.load takes parameters or a target: a target has its own tensors")
    given = named(parameters if target is None else target)
    with opened(path) as file:
        try:
            return _load(file, given, _compiled(target), Classes(classes), recompile)
        except _C.Error as error:
            raise _C.Error(f"'{os.fspath(path)}' can't be loaded: {error}") from None
        except _MALFORMED as error:
            raise _C.Error(f"'{os.fspath(path)}' can't be loaded: {error!r}") from error


def _load(
    file: SavedFile,
    given: Named,
    target: _C.CompiledFunction | None,
    classes: Classes,
    recompile: bool,
) -> _C.CompiledFunction:
    manifest = file.manifest
    foreign = "it was asked for" if recompile else _foreign(manifest)
    programs = ProgramReader(file, manifest["programs"], with_code=not foreign)
    if not programs.all_linked:
        foreign = foreign or "it was saved by another build of hostjit"
    whole = manifest["program"]
    if whole is not None:
        program = LoadedProgram(
            _C.parse(file.read("source").decode()),
            programs.programs[whole["number"]],
            whole["runtime"],
            whole["reuse_outputs"],
            foreign,
        )
        return _C.CompiledFunction(program.run, program)
    _check_given(manifest, given)
    optimizers: dict[str, Any] = {}
    if given.optimizers and manifest["optimizers"]:
        from hostjit.saving.optimizers import bound_optimizers

        optimizers = bound_optimizers(manifest, given)
    tensors = TensorReader(file, manifest["tensors"], given.tensors)
    numbers = NumberReader(manifest["numbers"], given.numbers)
    parts = Parts(
        programs.programs,
        tensors.tensors,
        manifest["tensors"],
        tensors.given,
        numbers.places,
        classes,
        tuple(optimizers.values()),
    )
    owner = LoadedFunction(
        manifest["name"],
        programs.programs,
        tensors.named,
        numbers,
        {name: given.optimizers[name] for name in optimizers},
        foreign,
        target,
    )
    function = _C.CompiledFunction(without_dynamo(owner.run, "it was loaded from a file"), owner)
    specializations = manifest["specializations"]
    made = [specialization_from_json(described, parts) for described in specializations]
    for (specialization, replay), described in zip(made, specializations, strict=True):
        owner.add(
            Answer(
                signature(described),
                conditions(described, parts),
                replay,
                described["checks"] is not None,
            ),
            classes_in(specialization.describe()["arguments"], "object"),
        )
    for specialization, _ in reversed(made):  # each goes to the front
        function.add(specialization)
    return function


def _check_given(manifest: dict[str, Any], given: Named) -> None:
    """Raise where nothing that is given has a name of the file's."""
    names = [name for entry in manifest["tensors"] for name in entry["names"]]
    if names and given.tensors and given.tensors.keys().isdisjoint(names):
        raise _C.Error(
            f"none of its tensors is given: it has '{names[0]}', what is given has "
            f"'{next(iter(given.tensors))}'"
        )


def _foreign(manifest: dict[str, Any]) -> str:
    """Say why code of the file can't fit here; "" where it may: its key has the last word."""
    from hostjit import __version__

    here = {"torch": str(torch.__version__), "hostjit": __version__, "host": _C.host_description()}
    for key, value in here.items():
        if manifest[key] != value:
            if key == "host":
                return "it was saved on a machine with another CPU or vector math"
            return f"it was saved with {key} {manifest[key]}, and this is {value}"
    return ""


def _compiled(target: Callable[..., Any] | None) -> _C.CompiledFunction | None:
    if target is None or isinstance(target, _C.CompiledFunction):
        return target
    from hostjit.compile import compile

    return compile(target)
