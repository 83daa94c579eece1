# SPDX-License-Identifier: Apache-2.0
"""Calls of loggers that say nothing. Dynamo ends a graph at each call of a logger.

Where the level is off, for the logger or for one above it, there is nothing to do as long as the
levels are what they are, which guards hold; `logging.info` and its like ask the root logger for its
handlers, too. Installed packages say some things once, by methods whose results
`functools.lru_cache` keeps (`warning_once` of transformers): such a call is made where it is
traced, and those after it find its result.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import AttrSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.misc import LoggingLoggerVariable

from hostjit.capturing.dynamo.attribute_reads import Read, replaced_reads
from hostjit.capturing.dynamo.kept_results import is_kept_and_installed, is_plain
from hostjit.capturing.dynamo.library_globals import guarded_source
from hostjit.replacements import replaced_attribute

__all__ = ["following_loggers"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}
# With the level as the first argument.
_WITH_LEVEL = ("log", "isEnabledFor")


@contextlib.contextmanager
def following_loggers() -> Iterator[None]:
    """Have Dynamo go on behind calls of loggers that say nothing, in this thread."""
    owner = threading.get_ident()
    call = LoggingLoggerVariable.call_method

    def call_method(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        source = guarded_source(self.source)
        if threading.get_ident() == owner and source is not None and not tx.export:
            level = _level_of(self.value, name, args)
            if level is not None and not self.value.isEnabledFor(level):
                _guard_levels(self.value, source)
                return ConstantVariable.create(False if name == "isEnabledFor" else None)
            if _is_said_once(self.value, name):
                said = _say(getattr(self.value, name), args, kwargs)
                if said is not None:
                    install_guard(source.make_guard(GuardBuilder.ID_MATCH))
                    return said
        return call(self, tx, name, args, kwargs)

    def reading(original: Read) -> Read:
        def read(self: Any, tx: Any, name: str) -> Any:
            source = guarded_source(self.source)
            if threading.get_ident() != owner or source is None or name not in vars(self.value):
                return original(self, tx, name)
            return VariableTracker.build(tx, vars(self.value)[name], AttrSource(source, name))

        return read

    with (
        replaced_attribute(LoggingLoggerVariable, "call_method", call_method),
        replaced_reads(LoggingLoggerVariable, reading),
    ):
        yield


def _level_of(logger: logging.Logger, name: str, args: Any) -> int | None:
    """Return the level that a method asks for; None where it does not do as `logging.Logger`'s."""
    for method in (name, "isEnabledFor", "getEffectiveLevel"):
        if method in vars(logger) or getattr(type(logger), method, None) is not vars(
            logging.Logger
        ).get(method):
            return None
    if not args:
        return None  # it raises
    if name not in _WITH_LEVEL:
        return _LEVELS.get(name)
    if not args[0].is_python_constant():
        return None
    level = args[0].as_python_constant()
    return level if isinstance(level, int) else None


def _guard_levels(logger: logging.Logger, source: Any) -> None:
    """Hold the logger to what `isEnabledFor` depends on."""
    install_guard(source.make_guard(GuardBuilder.ID_MATCH))
    manager = AttrSource(source, "manager")
    for place in (AttrSource(source, "disabled"), AttrSource(manager, "_disable")):
        install_guard(place.make_guard(GuardBuilder.CONSTANT_MATCH))
    above: Any = logger
    while above is not None:
        install_guard(AttrSource(source, "level").make_guard(GuardBuilder.CONSTANT_MATCH))
        if above.level:
            break
        source, above = AttrSource(source, "parent"), above.parent
        install_guard(source.make_guard(GuardBuilder.ID_MATCH))


def _is_said_once(logger: logging.Logger, name: str) -> bool:
    method = getattr(logger, name, None)
    return name not in vars(logger) and is_kept_and_installed(getattr(method, "__func__", None))


def _say(method: Any, args: Any, kwargs: Any) -> Any:
    """Call a method; None where Dynamo does not know an argument, or has no such result."""
    if not all(value.is_python_constant() for value in (*args, *kwargs.values())):
        return None
    given = [value.as_python_constant() for value in args]
    named = {name: value.as_python_constant() for name, value in kwargs.items()}
    try:
        found = method(*given, **named)
    except Exception:  # which the call raises, too
        return None
    return ConstantVariable.create(found) if is_plain(found) else None
