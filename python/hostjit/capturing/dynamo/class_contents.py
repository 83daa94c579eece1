# SPDX-License-Identifier: Apache-2.0
"""A guard on what classes define, for code that has Dynamo's guards alone.

Dynamo guards the class of an object, and of what the class has what it finds by a source; not what
a class comes to have, nor the methods of objects that code makes itself, nor special methods.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from torch._dynamo.guards import install_guard
from torch._dynamo.source import GlobalStateSource
from torch._dynamo.variables.misc import AutogradFunctionVariable
from torch._dynamo.variables.torch_function import TensorWithTFOverrideVariable
from torch._dynamo.variables.user_defined import UserDefinedClassVariable, UserDefinedObjectVariable
from torch._guards import TracingContext

from hostjit import _C
from hostjit.capturing.dynamo.guarded_classes import token_of
from hostjit.replacements import replaced_attribute

__all__ = ["guarding_class_contents"]

_NOTES = "hostjit_class_notes"

# Of PyTorch: while it traces, and then alone, such classes have other methods, as FakeTensor has.
_PRIVATE = "torch._"

# What C code defines in a class: it refers to the class, and nothing to it.
_OF_C = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.ClassMethodDescriptorType),
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.BuiltinFunctionType),
)


@contextlib.contextmanager
def guarding_class_contents() -> Iterator[None]:
    """Have Dynamo guard all classes that it meets, in this thread."""
    owner = threading.get_ident()

    def noting(kind: Any, attribute: str) -> contextlib.AbstractContextManager[None]:
        original = kind.__init__

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            value = getattr(self, attribute)
            is_own = self.source is None and isinstance(value, torch.fx.GraphModule)
            if threading.get_ident() == owner and not is_own:
                _note(type(value))
                if isinstance(value, type):
                    _note(value)

        return replaced_attribute(kind, "__init__", init)

    with (
        noting(UserDefinedObjectVariable, "value"),
        noting(UserDefinedClassVariable, "value"),
        noting(AutogradFunctionVariable, "fn_cls"),
        noting(TensorWithTFOverrideVariable, "class_type"),
    ):
        yield


def _note(kind: type) -> None:
    context = TracingContext.try_get()
    is_fixed = kind.__module__ == "builtins" or kind is torch.Tensor
    if context is None or is_fixed or str(kind.__module__).startswith(_PRIVATE):
        return
    notes = getattr(context, _NOTES, None)
    if notes is None:
        classes: Any = weakref.WeakValueDictionary()  # Dynamo keeps the guard
        notes = functools.partial(_add_guard, context, classes)
        setattr(context, _NOTES, notes)
    notes.args[1][id(kind)] = kind
    # It is one guard, but Dynamo forgets those of what it tries.
    install_guard(GlobalStateSource().make_guard(notes))


def _add_guard(context: Any, classes: Mapping[int, type], builder: Any, _: Any) -> None:
    code = context.traced_code
    names = frozenset(
        name for found in code for name in (*found.co_names, *found.co_consts) if type(name) is str
    )
    known = {number: list(_facts(kind, names)) for number, kind in classes.items()}

    def look(kind: type) -> bool:
        now, before = list(_facts(kind, names)), known[id(kind)]
        return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))

    functions = _functions(classes.values(), code)
    check = _C.class_check(classes.values(), functions, look, token_of(context.fake_mode))
    builder.guard_manager.root.add_lambda_guard(check, ["hostjit: classes are as they were"], None)


def _facts(kind: type, names: Set[str]) -> Iterator[object]:
    """Yield what a class and its bases define, and the names of what else has one of these.

    Nothing of it is kept alive: compare it by identity.
    """
    for base in kind.__mro__[:-1]:
        yield weakref.ref(base)
        for name, value in vars(base).items():
            if hasattr(type(value), "__get__"):
                yield name
                yield from map(_reference, _parts(value))
            elif name in names:
                yield name


def _parts(value: Any) -> Sequence[object]:
    if isinstance(value, property):
        return (value.fget, value.fset, value.fdel)
    if isinstance(value, (staticmethod, classmethod)):
        return (type(value), value.__func__)
    return (type(value) if isinstance(value, _OF_C) else value,)


def _reference(value: object) -> object:
    """Return what refers to an object, and is the same one while that is."""
    return value if type(value).__weakrefoffset__ == 0 else weakref.ref(value)


def _functions(
    classes: Iterable[type], traced_code: Sequence[types.CodeType]
) -> list[types.FunctionType]:
    """Return the functions of classes, each once, of which code was traced."""
    traced = set(map(id, traced_code))
    found: dict[int, types.FunctionType] = {}
    for base in {base for kind in classes for base in kind.__mro__}:
        for value in vars(base).values():
            for part in _parts(value):
                if isinstance(part, types.FunctionType) and id(part.__code__) in traced:
                    found[id(part)] = part
    return list(found.values())
