# SPDX-License-Identifier: Apache-2.0
"""Keeps captures from doing what nobody uses, above all the first one of a process.

Dynamo imports Inductor's code cache, every backend and parts of torch.distributed on its way, half
of the time of a first capture, to answer questions whose answer is known here. Each shortcut gives
the answer that the import would have led to, is probed for, and is in force only in the
capturing thread.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

from hostjit.replacements import replaced_attribute

__all__ = ["lean_dynamo", "prepare_distributions"]

_LOCAL_MAP = "torch.distributed.tensor.experimental._func_map"


@contextlib.contextmanager
def lean_dynamo() -> Iterator[None]:
    """Apply the shortcuts for the time of one capture."""
    owner = threading.get_ident()
    with contextlib.ExitStack() as stack:
        _skip_backend_registry(stack, owner)
        _skip_input_pickler(stack, owner)
        _skip_local_map(stack, owner)
        _skip_file_list(stack)
        _skip_export_report(stack, owner)
        _skip_guard_timing(stack, owner)
        _skip_metrics(stack, owner)
        _skip_function_names(stack, owner)
        yield


@functools.cache
def prepare_distributions() -> None:
    """Switch the checks of distributions off that look at values, as torch.compile does.

    For the process, and once: Dynamo does not trace them. Who wants them switches them on again.
    """
    torch.distributions.Distribution.set_default_validate_args(False)


def _skip_backend_registry(stack: contextlib.ExitStack, owner: int) -> None:
    """Dynamo looks "eager" up to see that it is not our backend, only inside functorch."""
    original = getattr(torch._dynamo, "lookup_backend", None)
    if original is None:
        return

    def lookup(name: Any) -> Any:
        if name == "eager" and threading.get_ident() == owner:
            return name
        return original(name)

    stack.enter_context(replaced_attribute(torch._dynamo, "lookup_backend", lookup))


def _skip_input_pickler(stack: contextlib.ExitStack, owner: int) -> None:
    """The pickler of node hashes is made for every graph, and used by deduplication only."""
    try:
        tracker = importlib.import_module("torch._dynamo.graph_region_tracker")
    except ImportError:
        return
    config = torch._dynamo.config
    original = getattr(tracker, "InputPickler", None)
    unused = not getattr(config, "use_graph_deduplication", True) and not getattr(
        config, "track_nodes_for_deduplication", True
    )
    if original is None or not unused:
        return

    def make() -> Any:
        return None if threading.get_ident() == owner else original()

    stack.enter_context(replaced_attribute(tracker, "InputPickler", make))


def _skip_local_map(stack: contextlib.ExitStack, owner: int) -> None:
    """A value cannot be a function of a module that nobody has imported."""
    variables = importlib.import_module("torch._dynamo.variables.higher_order_ops")
    variable = getattr(variables, "LocalMapWrappedHigherOrderVariable", None)
    if variable is None or not hasattr(variable, "should_wrap_in_hop"):
        return
    original = variable.should_wrap_in_hop

    def should_wrap(value: Any) -> bool:
        if threading.get_ident() == owner and _LOCAL_MAP not in sys.modules:
            return False
        return bool(original(value))

    stack.enter_context(replaced_attribute(variable, "should_wrap_in_hop", should_wrap))


def _skip_file_list(stack: contextlib.ExitStack) -> None:
    """The files left out of stack traces are known by their paths, without importing them."""
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    output_graph = importlib.import_module("torch._dynamo.output_graph")
    for module in (shapes, output_graph):
        if hasattr(module, "uninteresting_files"):
            stack.enter_context(replaced_attribute(module, "uninteresting_files", _library_files))


def _skip_export_report(stack: contextlib.ExitStack, owner: int) -> None:
    """The names of side effects are reported to torch.export only, which is not running."""
    output_graph = importlib.import_module("torch._dynamo.output_graph").OutputGraph
    name = "get_replayed_side_effect_source_refs"
    original = getattr(output_graph, name, None)
    if original is None:
        return

    def report(self: Any, **options: Any) -> list[str]:
        if threading.get_ident() == owner and "torch.export._trace" not in sys.modules:
            return []
        return list(original(self, **options))

    stack.enter_context(replaced_attribute(output_graph, name, report))


def _skip_guard_timing(stack: contextlib.ExitStack, owner: int) -> None:
    """Dynamo measures its guards for its log, and empties the CPU's caches for it: 20 ms."""
    guards = importlib.import_module("torch._dynamo.guards")
    original = getattr(guards, "profile_guard_manager", None)
    if original is None:
        return

    def measure(*args: Any) -> float:
        return 0.0 if threading.get_ident() == owner else float(original(*args))

    stack.enter_context(replaced_attribute(guards, "profile_guard_manager", measure))


def _skip_metrics(stack: contextlib.ExitStack, owner: int) -> None:
    """Dynamo writes its settings, and Inductor's, into a record of every compilation."""
    context = torch._dynamo.utils.get_metrics_context()
    original = getattr(context, "_on_exit", None)
    if original is None:
        return

    def record(*args: Any) -> None:
        if threading.get_ident() != owner:
            original(*args)

    stack.enter_context(replaced_attribute(context, "_on_exit", record))


def _skip_function_names(stack: contextlib.ExitStack, owner: int) -> None:
    """Dynamo tokenizes each file whose code it traces, to name functions in its log: 20 ms each."""
    convert = importlib.import_module("torch._dynamo.symbolic_convert")
    original = getattr(convert, "get_funcname", None)
    log = getattr(importlib.import_module("torch._dynamo.output_graph"), "trace_call_log", None)
    source_log = getattr(convert, "trace_source_log", None)
    if original is None or log is None or source_log is None:
        return

    def name(filename: str, line: int) -> str | None:
        is_logged = any(each.isEnabledFor(logging.DEBUG) for each in (log, source_log))
        if threading.get_ident() == owner and not is_logged:
            return None
        found: str | None = original(filename, line)
        return found

    stack.enter_context(replaced_attribute(convert, "get_funcname", name))


@functools.cache
def _library_files() -> frozenset[str]:
    folder = Path(torch.__file__).parent
    folders = ("_dynamo", "_higher_order_ops", "_library", "_logging", "_subclasses", "fx")
    files = [path for name in folders for path in (folder / name).rglob("*.py")]
    single = ("__init__.py", "_compile.py", "_inductor/sizevars.py", "export/_trace.py")
    return frozenset({"<string>", *map(str, files), *(str(folder / name) for name in single)})
