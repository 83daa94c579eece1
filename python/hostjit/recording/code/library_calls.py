# SPDX-License-Identifier: Apache-2.0
"""What code asks the standard library for that no name in it tells: modules, classes, frames.

Keyed by the code that answers: when it runs, its arguments tell what a recording depends on.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import importlib
import inspect
import logging
import os
import threading
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree

from hostjit.recording.code.c_callables import reads_attributes
from hostjit.recording.code.libraries import (
    acts_for_library,
    is_asked_by_user,
    is_library,
    is_of_standard_library,
)
from hostjit.recording.code.names import ASKING, name_asked
from hostjit.recording.reach.settings import AUTOCAST, WARN, WARNINGS

if TYPE_CHECKING:
    from hostjit.recording.reach.state import State

__all__ = ["GLOBALS", "note_c_call", "note_library_call"]

_OF_AUTOCAST = frozenset({"get_autocast_dtype", "get_autocast_cpu_dtype", "get_autocast_gpu_dtype"})
# Of the standard library: their `getattr` asks for nothing that is not looked at already.
_KNOWN = frozenset({contextlib.__file__, dataclasses.__file__, abc.__file__})

# Globals of libraries that users change by functions: of modules, all that begin with a text.
GLOBALS: dict[str, str] = {
    "torch.nn.modules.module": "_global_",
    "torch._tensor_str": "PRINT_OPTS",
    "torch.__future__": "_",
    "torch.nn.utils.parametrize": "_cache",
    "torch.optim.optimizer": "_global_optimizer",
}


def note_library_call(state: State, frame: types.FrameType) -> str:
    """Have a state remember what is asked; return what a replay can't answer, or ""."""
    answer = _ANSWERS.get(frame.f_code)
    return "" if answer is None else answer(state, frame.f_locals)


def _instance_of_abstract(state: State, given: Mapping[str, Any]) -> str:
    instance = given["instance"]
    for kind in {type(instance), instance.__class__}:
        state.abstract_classes().add(given["cls"], kind)
    return ""


def _subclass_of_abstract(state: State, given: Mapping[str, Any]) -> str:
    state.abstract_classes().add(given["cls"], given["subclass"])
    return ""


def _instance_of_protocol(state: State, given: Mapping[str, Any]) -> str:
    members = getattr(given["cls"], "__protocol_attrs__", None)
    if members is None:
        members = typing._get_protocol_attrs(given["cls"])  # type: ignore[attr-defined]
    state.add_names(frozenset(members), of_user=True)
    return ""


def _dispatch(state: State, given: Mapping[str, Any]) -> str:
    if given.get("cache_token") is not None:  # some function is for an abstract class
        state.abstract_classes().add_others()
    return ""


def _import_module(state: State, given: Mapping[str, Any]) -> str:
    name, package = given["name"], given["package"]
    state.add_import(importlib.util.resolve_name(name, package) if name[0] == "." else name)
    return ""


def _getenv(state: State, given: Mapping[str, Any]) -> str:
    variables: Any = os.environ
    state.add_items(variables._data, "os.environ", [variables.encodekey(given["key"])])
    return ""


def _get_logger(state: State, given: Mapping[str, Any]) -> str:
    loggers = logging.Logger.manager.loggerDict
    state.add_items(loggers, "logging", [given["name"]] if given["name"] else [])
    return ""


def _all_fields(state: State, given: Mapping[str, Any]) -> str:
    found = (given[name] for name in ("obj", "object", "self") if name in given)
    state.add_all_attributes(next(found))
    return ""


def _threads(state: State, given: Mapping[str, Any]) -> str:
    return "asks which threads there are"


def _shown_warning(state: State, given: Mapping[str, Any]) -> str:
    state.add_setting(WARNINGS)
    return ""


def _swap(state: State, given: Mapping[str, Any]) -> str:
    return "swaps tensors, which a replay would not"


def _frames(state: State, given: Mapping[str, Any]) -> str:
    return "looks at the frames of its callers, which a replay has not"


def note_c_call(state: State, frame: types.FrameType, function: Any) -> None:
    """Have a state remember what Python code is about to ask a function of C code."""
    name = getattr(function, "__name__", "")
    if isinstance(function, types.BuiltinFunctionType) and function in WARN:
        state.add_setting(WARNINGS)
    elif name in _OF_AUTOCAST:
        state.add_setting(AUTOCAST)
    elif function in ASKING and not is_library(frame.f_code.co_filename):
        state.add_asked_name(name_asked(frame))
    elif reads_attributes(function):
        file = frame.f_code.co_filename
        is_asked = is_of_standard_library(file) and file not in _KNOWN
        flattens = file == torch.utils._pytree.__file__ and "flatten" in frame.f_code.co_name
        if flattens or (is_asked and not acts_for_library(frame)):
            state.add_everything()
    elif is_asked_by_user(frame):
        state.add_reader(function)


_Answer = Callable[["State", Mapping[str, Any]], str]
_protocols: Any = type(typing.Protocol)
_ANSWERS: dict[types.CodeType, _Answer] = {
    function.__code__: answer
    for answer, functions in (
        (_instance_of_abstract, [abc.ABCMeta.__instancecheck__]),
        (_subclass_of_abstract, [abc.ABCMeta.__subclasscheck__]),
        (_instance_of_protocol, [_protocols.__instancecheck__]),
        (_dispatch, [functools.singledispatch(lambda _: None).dispatch]),
        (_import_module, [importlib.import_module]),
        (_getenv, [os.getenv]),
        (_get_logger, [logging.getLogger]),
        (_all_fields, [vars(dataclasses)[f"_{name}_inner"] for name in ("asdict", "astuple")]),
        (_all_fields, [vars(dataclasses).get("_replace", dataclasses.replace)]),
        (_threads, [threading.active_count, threading.enumerate]),
        (_shown_warning, [vars(warnings)["_showwarnmsg"]]),
        (_all_fields, [inspect.getmembers]),
        (_swap, [torch.utils.swap_tensors]),
        (_frames, [inspect.currentframe, inspect.stack, traceback.extract_stack]),
    )
    for function in functions
}
