# SPDX-License-Identifier: Apache-2.0
"""Keeps to itself what PyTorch says of its own doings while it captures."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch._dynamo import utils

from hostjit.replacements import replaced_attribute

__all__ = [
    "without_log_of_advice",
    "without_log_of_failures",
    "without_warnings_of_dynamo",
    "without_warnings_of_gradients",
]

_LOGS = (
    ("torch._subclasses.fake_tensor", "failed while attempting to run meta"),
    ("torch.fx.experimental.symbolic_shapes", "failed during evaluate_expr"),
)
_LOGS_OF_ADVICE = (
    ("torch._dynamo.convert_frame", "torch._dynamo hit config."),
    ("torch._dynamo.variables.tensor", "Graph break from `Tensor.item()`"),
)


def without_log_of_failures() -> contextlib.AbstractContextManager[None]:
    """Leave out what PyTorch logs, with a traceback, of each exception of this thread.

    Eager raises it too, and says what is wrong without help.
    """
    return _without_records(_LOGS)


def without_log_of_advice() -> contextlib.AbstractContextManager[None]:
    """Leave out what Dynamo advises in this thread: of `x.item()`, and of code with many programs.

    Warnings of hostjit's say how calls run.
    """
    return _without_records(_LOGS_OF_ADVICE)


@contextlib.contextmanager
def _without_records(logs: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Leave out records of this thread by the names of loggers and how messages begin."""
    owner = threading.get_ident()

    def quiet(message: str) -> Callable[[logging.LogRecord], bool]:
        def is_for_others(record: logging.LogRecord) -> bool:
            return threading.get_ident() != owner or not str(record.msg).startswith(message)

        return is_for_others

    filters = [(logging.getLogger(name), quiet(message)) for name, message in logs]
    for logger, is_for_others in filters:
        logger.addFilter(is_for_others)
    try:
        yield
    finally:
        for logger, is_for_others in filters:
            logger.removeFilter(is_for_others)


@contextlib.contextmanager
def without_warnings_of_dynamo() -> Iterator[None]:
    """Leave out what Dynamo warns of in this thread, once in a process.

    Of functions that it cannot follow hostjit says more; nor does it ignore what `lru_cache` keeps.
    """
    owner = threading.get_ident()
    warn_once = utils.warn_once

    def warn(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != owner:
            warn_once(*args, **kwargs)

    with replaced_attribute(utils, "warn_once", warn):
        yield


@contextlib.contextmanager
def without_warnings_of_gradients() -> Iterator[None]:
    """Let PyTorch look whether tensors have a `.grad`, where warnings are errors, too."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        yield
