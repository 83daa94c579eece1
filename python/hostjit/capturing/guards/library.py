# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch that somebody replaces, and that code reaches by no name of its own.

`torch.nn.functional` calls functions of `torch` by their names, operators call methods of tensors,
and Dynamo guards neither those nor the methods that code calls by their names.
"""

from __future__ import annotations

import functools
import operator
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hostjit.capturing.guards.watches import DictItems
from hostjit.capturing.instances import HEAP_TYPE

__all__ = ["LibraryFunctions", "functions_now", "replaced_attribute_of_tensors"]

_MODULES = (torch, torch.nn.functional)


class LibraryFunctions:
    """Functions of modules of PyTorch, and attributes of tensors, as they are now.

    Attributes:
        modules: the functions of each of the modules.
        tensors: a class whose version tells of changes of `torch.Tensor`, too: it is derived of it.
    """

    tensors = torch.nn.Parameter

    def __init__(self) -> None:
        self.modules: list[DictItems] = []
        for module in _MODULES:
            # No classes: `torch.Storage` is another one with each default dtype.
            found = {
                name: value
                for name, value in vars(module).items()
                if callable(value) and not isinstance(value, type)
            }
            names, functions = tuple(found), tuple(found.values())
            entry = DictItems(vars(module), None, names, functions, module.__name__)
            self.modules.append(entry)
        bases = [base for base in self.tensors.__mro__ if base.__flags__ & HEAP_TYPE]
        self._attributes = {base: dict(vars(base)) for base in bases}

    def unchanged(self) -> bool:
        """Tell whether each is still the same object, and none hides what a class inherits."""
        return all(map(_are_unchanged, self.modules)) and all(
            _is_unchanged(kind, before) for kind, before in self._attributes.items()
        )


def _are_unchanged(before: DictItems) -> bool:
    try:
        found = operator.itemgetter(*before.keys)(before.mapping)
    except KeyError:
        return False
    return all(map(operator.is_, found, before.expected))


def _is_unchanged(kind: type, before: Mapping[str, Any]) -> bool:
    now = vars(kind)
    return all(now.get(name) is value for name, value in before.items()) and not any(
        name not in before and any(name in vars(base) for base in kind.__mro__[1:]) for name in now
    )


def functions_now() -> LibraryFunctions:
    """Return them, the latest ones again where nothing has changed."""
    global _latest
    if _latest is None or not _latest.unchanged():
        _latest = LibraryFunctions()
    return _latest


_latest: LibraryFunctions | None = None


def replaced_attribute_of_tensors(traced: Iterable[types.CodeType] = ()) -> str:
    """Return the name of an attribute of tensors that is not PyTorch's own; "" if there is none.

    One that hostjit asks, or that Dynamo answers, without a look at the class, in code that runs.
    """
    names = {name for code in traced for name in code.co_names}
    for name in (*_ALWAYS_ASKED, *filter(names.__contains__, _answered_by_dynamo())):
        if not _is_of_torch(getattr(torch.Tensor, name, None)):
            return f"torch.Tensor.{name}"
    return ""


@functools.cache
def _answered_by_dynamo() -> tuple[str, ...]:
    from torch._dynamo.variables import TensorVariable

    methods = (name for name in dir(TensorVariable) if name.startswith("method_"))
    names = (re.sub("^method_(attr_)?", "", name) for name in methods)
    return tuple(name for name in names if hasattr(torch.Tensor, name))


# Other operators Dynamo has the methods do.
_ALWAYS_ASKED = (
    *("__len__", "__iter__", "__contains__", "__bool__", "__int__", "__float__", "__index__"),
    *("shape", "ndim", "dtype", "device", "layout", "requires_grad", "grad", "grad_fn", "data"),
    *("size", "stride", "storage_offset", "dim", "numel", "data_ptr", "untyped_storage"),
)
_OF_C_CODE = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType),
    *(types.BuiltinFunctionType, type(None)),
)


def _is_of_torch(value: Any) -> bool:
    function = value.fget if isinstance(value, property) else value
    if isinstance(function, types.FunctionType):
        return str(function.__globals__.get("__name__")).partition(".")[0] == "torch"
    return isinstance(function, _OF_C_CODE)
