# SPDX-License-Identifier: Apache-2.0
"""Keeps to itself what PyTorch says of its own doings while it captures."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from torch._dynamo import utils

from hostjit.replacements import replaced_attribute

__all__ = [
    "without_log_of_failures",
    "without_log_of_refusals",
    "without_warnings_of_dynamo",
    "without_warnings_of_gradients",
]

_OPERATORS = logging.getLogger("torch._subclasses.fake_tensor")
_OPERATOR_FAILED = "failed while attempting to run meta"
_DECISIONS = logging.getLogger("torch.fx.experimental.symbolic_shapes")
_DECISION_FAILED = "failed during evaluate_expr"


def without_log_of_failures() -> contextlib.AbstractContextManager[None]:
    """Leave out what PyTorch logs, with a traceback, of each exception of this thread.

    Eager raises it too, and says what is wrong without help.
    """
    return _without_log(_OPERATORS, _OPERATOR_FAILED)


def without_log_of_refusals() -> contextlib.AbstractContextManager[None]:
    """Leave out what PyTorch logs of each decision by a size that this thread is refused."""
    return _without_log(_DECISIONS, _DECISION_FAILED)


@contextlib.contextmanager
def _without_log(logger: logging.Logger, message: str) -> Iterator[None]:
    owner = threading.get_ident()

    def is_for_others(record: logging.LogRecord) -> bool:
        return threading.get_ident() != owner or message not in str(record.msg)

    logger.addFilter(is_for_others)
    try:
        yield
    finally:
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
