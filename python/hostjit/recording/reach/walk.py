# SPDX-License-Identifier: Apache-2.0
"""The walk over objects that code can reach by the names that it has."""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import contextvars
import functools
import inspect
import operator
import sys
import threading
import types
import weakref
from typing import Any

import torch

from hostjit.capturing.instances import (
    HEAP_TYPE,
    has_member,
    instance_dict,
    is_a,
    is_one_of,
    shown,
)
from hostjit.launching.user_kernel import Kernel
from hostjit.optimizers.rules import rule_of
from hostjit.recording import numpy_types
from hostjit.recording.code.libraries import is_library
from hostjit.recording.code.repeatable import RANDOM_SOURCES
from hostjit.recording.code.variables import known_variables
from hostjit.recording.reach.classes import Class
from hostjit.recording.reach.compared_entries import Contents, Variable
from hostjit.recording.reach.entries import (
    Items,
    ListEntry,
    SetEntry,
    Slots,
    stored_in,
)
from hostjit.recording.reach.fields import Fields, ModuleClass
from hostjit.recording.reach.functions import Cell, Function
from hostjit.recording.reach.objects import (
    ITERATORS,
    TRUSTED,
    has_hidden_state,
    is_library_module,
    is_users_alone,
    parts_of,
)
from hostjit.recording.reach.reached import Reached
from hostjit.recording.reach.scalers import STATES, ScalerStates
from hostjit.recording.running.gradient_hooks import hooks_of
from hostjit.recording.triton import types as triton_types

__all__ = ["Walk"]

# What PyTorch puts around steps of optimizers, which recordings of other threads replace.
_OF_STEPS = torch.optim.Optimizer.profile_hook_step.__code__.co_filename


class Walk(Reached):
    """What is reached, and the entries that it is compared by.

    Attributes:
        tensors: by id, with where they were found.
        leaves: ids of the tensors among the arguments, which are no state.
        shared: those of them that are reached in another way, too.
        asks_for_absent: code may ask whether a tensor has an attribute.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tensors: dict[int, tuple[torch.Tensor, str]] = {}
        self.leaves: set[int] = set()
        self.shared: list[torch.Tensor] = []
        self.gradients: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self._graphs: dict[int, tuple[torch.Tensor, Any]] = {}
        self._groups: list[Items] = []  # those of optimizers
        self._reads_groups = False
        self._by_position = False
        self._weak: list[tuple[weakref.ref[Any], str]] = []
        self._codes: dict[types.CodeType, dict[str, Any]] = {}
        self._without_attributes: list[tuple[torch.Tensor, str]] = []
        self.asks_for_absent = False
        self._attributes_of_arguments: list[tuple[frozenset[str], str]] = []

    def _note_tensor(self, tensor: torch.Tensor) -> None:
        self._push(type(tensor), type(tensor).__qualname__)  # whose methods somebody may replace
        graph = _graph_of(tensor)
        self._graphs.setdefault(id(tensor), (tensor, graph))
        for hooks in hooks_of(tensor):
            if hooks is not None:
                self._push(hooks, "hooks of a tensor")
        # Code may drop a gradient that was there before its owner needed none.
        is_leaf = graph is None or not tensor.requires_grad
        if is_leaf and (tensor.is_floating_point() or tensor.is_complex()):
            self.gradients.setdefault(id(tensor), (tensor, tensor.grad))

    def is_found_elsewhere(self, gradient: int) -> bool:
        """Tell whether a gradient, given by its id, is found but as that of one tensor."""
        owners = [owner for owner, found in self.gradients.values() if id(found) == gradient]
        return len(owners) > 1 or gradient in self.tensors

    def take_changed_graphs(self) -> bool:
        """Tell whether a tensor has another graph than it had, and forget the graphs."""
        with torch._C.DisableTorchFunction():
            found = any(_graph_of(tensor) is not was for tensor, was in self._graphs.values())
        self._graphs.clear()
        return found

    def _ask_for_absent(self) -> None:
        """Look at the attributes of tensors that have none, too: code may ask whether there are."""
        self.asks_for_absent = True
        for tensor, path in self._without_attributes:
            self._visit_attributes(tensor, path)
        self._without_attributes.clear()

    def _visit(self, value: Any, path: str) -> None:
        if is_a(value, torch.Tensor):
            if id(value) in self.leaves:
                self.shared.append(value)
            else:
                self.tensors[id(value)] = value, path
                self._note_tensor(value)
            if instance_dict(value) or self.asks_for_absent:
                self._visit_attributes(value, path)
            else:
                self._without_attributes.append((value, path))
        elif is_a(value, (tuple, frozenset)):
            for item in stored_in(value):
                self._push(item, f"{path}[...]")
            self._visit_subclass(value, path)
        elif is_a(value, list):
            self._add("list", value, ListEntry(value, path))
            for index, item in enumerate(stored_in(value)):
                self._push(item, f"{path}[{index}]")
            self._visit_subclass(value, path)
        elif is_a(value, dict):
            self._add("items", value, Items(value, None, path, by_name=False))
            for key, item in stored_in(value):
                self._push(item, f"{path}[{shown(key)}]")
                self._push(key, f"a key of {path}")
            self._visit_subclass(value, path)
        elif is_a(value, set):
            self._add("set", value, SetEntry(value, path))
            for item in stored_in(value):
                self._push(item, f"an item of {path}")
            self._visit_subclass(value, path)
        elif is_a(value, types.ModuleType):
            self._visit_module(value)
        elif is_a(value, types.FunctionType):
            self._visit_function(value, path)
        elif is_a(value, type):
            self._visit_class(value, path)
        elif is_a(value, types.CellType):
            self._visit_cell(value, path)
        elif is_a(value, weakref.ref):
            self._visit_weak(value, path)
        else:
            self._visit_object(value, path)

    def _visit_module(self, module: types.ModuleType) -> None:
        of_library = is_library_module(module)
        entry = Items(vars(module), None, module.__name__, by_name=True, by_attribute=True)
        entry.of_library, entry.of_user = of_library, not of_library
        self._add("items", vars(module), entry)
        self.objects[id(vars(module))] = vars(module)
        if not of_library:
            self._add("class_of", module, ModuleClass(module))
            self._visit_subclass(module, module.__name__)
        known = self._entries["items", id(vars(module))]
        assert isinstance(known, Items)
        known.by_attribute = True  # its globals may be known already
        self._extend(known, set(self._names))
        if not of_library:
            self._extend_by(known, ["__getattr__"])

    def _visit_function(self, function: types.FunctionType, path: str) -> None:
        file = function.__code__.co_filename
        if file == _OF_STEPS or (is_library(file) and not function.__closure__):
            return
        self._add("function", function, Function(function, path))
        for value in function.__defaults__ or ():
            self._push(value, f"a default of {path}")
        if function.__kwdefaults__:
            self._push(function.__kwdefaults__, f"the defaults of {path}")
        names = function.__code__.co_freevars
        known = known_variables(function.__code__) if names else frozenset()
        for name, cell in zip(names, function.__closure__ or (), strict=True):
            if name in known:
                self._visit_cell(cell, f"'{name}' of {path}")
        if instance_dict(function) or not is_library(function.__code__.co_filename):
            self._visit_attributes(function, path)
            self._visit_fields(function, path)

    def _visit_cell(self, cell: types.CellType, path: str) -> None:
        entry = Cell(cell, path)
        self._add("cell", cell, entry)
        for value in entry.values():
            self._push(value, path)

    def _visit_weak(self, reference: weakref.ref[Any], path: str) -> None:
        value = reference()
        if is_a(value, (type, types.ModuleType)):
            self._push(value, path)
        else:
            self._weak.append((reference, path))
        self._visit_subclass(reference, path)

    def _visit_class(self, kind: type, path: str) -> None:
        if not kind.__flags__ & HEAP_TYPE:  # made by C code, which nobody changes
            return
        module = sys.modules.get(kind.__module__)
        is_users = module is None or not is_library_module(module)
        entry = Class(kind, path, by_attribute=is_users)
        entry.of_user = is_users_alone(kind)
        self._add("class", kind, entry)
        if not is_users:
            return
        self._visit_fields(kind, path)
        self._push(type(kind), f"the class of {path}")
        for value in entry.special_functions():
            self._push(value, f"a method of {path}")
        if self._by_position:
            self.add_names(entry.matched_names(), of_user=True)
        self._extend(entry, set(self._names))

    def _visit_subclass(self, value: Any, path: str) -> None:
        """Look at what an object of a subclass has besides what its builtin base has."""
        is_heap_type = type(value).__flags__ & HEAP_TYPE
        if is_heap_type or type(value) is collections.defaultdict:
            self._visit_slots(value, path)
        if not is_heap_type:
            return
        self._push(type(value), type(value).__qualname__)
        if instance_dict(value) is not None:
            self._visit_attributes(value, path)

    def _visit_slots(self, value: Any, path: str) -> Slots:
        slots = Slots(value, path)
        if slots:
            self._add("slots", value, slots)
            for found in slots.values():
                self._push(found, path)
        return slots

    def _visit_attributes(self, value: Any, path: str) -> None:
        attributes = instance_dict(value)
        assert attributes is not None
        entry = Items(attributes, value, path, by_name=True, by_attribute=True)
        entry.of_user = is_users_alone(type(value))
        self._add("items", attributes, entry)
        self.objects[id(attributes)] = attributes
        self._extend(self._entries["items", id(attributes)], set(self._names))

    def _visit_fields(self, value: type | types.FunctionType, path: str) -> None:
        self._add("fields", value, Fields(value, path))
        self._extend(self._entries["fields", id(value)], set(self._names))

    def _visit_object(self, value: Any, path: str) -> None:
        kind = type(value)
        inner = parts_of(value)
        if inner is not None:
            for part in inner:
                self._push(part, path)
            if is_a(value, functools.partial):
                self._visit_attributes(value, path)
            if kind.__module__.partition(".")[0] not in TRUSTED:
                self._visit_subclass(value, path)
            return
        if is_a(value, types.SimpleNamespace):
            # C code compares and prints them by all of their attributes.
            self._add("items", vars(value), Items(vars(value), value, path, by_name=False))
            for name, item in vars(value).items():
                self._push(item, f"{path}.{name}")
            self._visit_subclass(value, path)
            return
        if is_a(value, (*numpy_types.ARRAYS, bytearray, memoryview, collections.deque)):
            contents = Contents(value, path)
            self._add("contents", value, contents)
            for item in contents.values():
                self._push(item, f"an item of {path}")
            self._visit_subclass(value, path)
            return
        if is_a(value, (operator.attrgetter, operator.methodcaller)):
            self._add_names_of(value)
            return
        if is_a(value, functools._lru_cache_wrapper):
            module = sys.modules.get(value.__module__)
            if module is None or not is_library_module(module):
                self._hinder(f"{path}, whose results are kept in a cache")
            return
        if is_a(value, contextvars.ContextVar):
            variable = Variable(value, path)
            self._add("variable", value, variable)
            for found in variable.values():
                self._push(found, path)
            return
        if is_a(value, (*ITERATORS, *RANDOM_SOURCES)) or has_member(kind, "__next__"):
            self._hinder(f"{path}, a {kind.__qualname__}")
            return
        if is_a(value, torch.optim.Optimizer) and _has_groups(value):
            self._visit_optimizer(value, path)
            return
        if is_a(value, torch.amp.GradScaler):
            self._visit_scaler(value, path)
            return
        if triton_types.is_kernel(value):
            self._visit_kernel(value, path)
            return
        if _is_decorator(value):
            self._visit_decorator(value, path)
            return
        if is_one_of(kind, (Kernel, torch.jit.ScriptFunction)):
            return  # nobody can change one
        self._push(kind, kind.__qualname__)
        slots = self._visit_slots(value, path)
        # A `threading.local` has another dict in each thread, which itself alone finds.
        if instance_dict(value) is not None or isinstance(value, threading.local):
            self._visit_attributes(value, path)
        elif kind.__dictoffset__ or not (slots or kind.__module__.partition(".")[0] in TRUSTED):
            self._hinder(f"{path}, a {kind.__module__}.{kind.__qualname__}")
        if has_hidden_state(kind) or is_a(value, BaseException):
            self._hinder(f"{path}, a {kind.__module__}.{kind.__qualname__}")

    def _add_names_of(self, getter: operator.attrgetter[Any] | operator.methodcaller) -> None:
        texts = [text for text in getter.__reduce__()[1] if isinstance(text, str)]
        names = {name for text in texts for name in text.split(".")}
        self._asked |= names
        self._names |= names
        self._user_names |= names
        self._extend_all(names)

    def _visit_kernel(self, kernel: Any, path: str) -> None:
        """Of what Triton launches, all but its caches."""
        entry = Items(vars(kernel), kernel, path, by_name=True)
        for name in triton_types.ATTRIBUTES:
            if entry.add(name):
                for value in entry.values(name):
                    self._push(value, f"{path}.{name}")
        self._add("items", vars(kernel), entry)
        self.objects[id(vars(kernel))] = vars(kernel)

    def _visit_decorator(self, context: Any, path: str) -> None:
        """Of a context that decorates a function, all but its generator: calls make others."""
        attributes = vars(context)
        entry = Items(attributes, context, path, by_name=True)
        for name in attributes.keys() - {"gen"}:
            if entry.add(name):
                for value in entry.values(name):
                    self._push(value, f"{path}.{name}")
        self._add("items", attributes, entry)
        self.objects[id(attributes)] = attributes

    def _visit_optimizer(self, optimizer: torch.optim.Optimizer, path: str) -> None:
        """Numbers such as learning rates are read at each call, so they are free to change.

        Not where code other than a recorded step reads them, which knows one value. Without a rule,
        all steps are such code, and nothing but them knows what else is in a group.
        """
        rule = rule_of(type(optimizer))
        groups = vars(optimizer)["param_groups"]
        self._add("list", groups, ListEntry(groups, f"{path}.param_groups"))
        self.objects[id(groups)] = groups  # its items are looked at here, without their numbers
        for index, group in enumerate(groups):
            entry = Items(group, None, f"{path}.param_groups[{index}]", by_name=True)
            for key in ("params", *(() if rule is None else optimizer.defaults)):
                if key not in group:  # PyTorch adds defaults when an optimizer is copied or loaded
                    continue
                if rule and key in rule.numbers and not torch.is_tensor(group[key]):
                    continue
                entry.add(key)
                self._push(group[key], f"{entry.path}[{key!r}]")
            self._add("group", group, entry)
            self._groups.append(entry)
        if self._reads_groups:
            self._compare_groups()
        self._push(type(optimizer), type(optimizer).__qualname__)
        self._visit_attributes(optimizer, path)
        self._extend(self._entries["items", id(vars(optimizer))], {"step"})

    def _visit_scaler(self, scaler: torch.amp.GradScaler, path: str) -> None:
        """All attributes, one of which is compared by what is in it."""
        states = ScalerStates(scaler, path)
        self._add("scaler", scaler, states)
        for tensor in states.tensors():
            self._push(tensor, states.path)
        entry = Items(vars(scaler), scaler, path, by_name=True)
        for name in vars(scaler):
            if name != STATES and entry.add(name):
                self._push(vars(scaler)[name], f"{path}.{name}")
        self._add("items", vars(scaler), entry)
        self.objects[id(vars(scaler))] = vars(scaler)
        self._push(type(scaler), type(scaler).__qualname__)

    def _compare_groups(self) -> None:
        """Compare all that groups of optimizers have from now on: code is going to look at it."""
        self._reads_groups = True
        for entry in self._groups:
            keys = entry.keys()
            for key in filter(entry.add, keys):
                for value in entry.values(key):
                    self._push(value, f"{entry.path}[{key!r}]")


def _has_groups(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer has groups as PyTorch's have them."""
    groups = vars(optimizer).get("param_groups")
    return type(groups) is list and all(type(group) is dict for group in groups)


def _graph_of(tensor: torch.Tensor) -> Any:
    """Return the node that computed a tensor, None for a leaf; False without a gradient.

    Also False for a view that was made without gradients, and whose base has changed with them:
    PyTorch refuses to say. Nor does it to anybody else.
    """
    try:
        return tensor.requires_grad and tensor.grad_fn
    except RuntimeError:
        return False


def _is_decorator(value: Any) -> bool:
    """Tell whether a context of `contextlib.contextmanager` was not entered, and may be anew."""
    if type(value) is not contextlib._GeneratorContextManager or "func" not in vars(value):
        return False
    generator = value.gen
    is_new = type(generator) is types.GeneratorType
    return is_new and inspect.getgeneratorstate(generator) == inspect.GEN_CREATED
