# SPDX-License-Identifier: Apache-2.0
"""Functions whose results `functools.lru_cache` keeps: Dynamo would run them anew at each call.

Where that gives a number, a string or a tuple of them, and the function itself gives the same now,
Dynamo goes on with it. Elsewhere it stops, so that Python calls the function between two parts: a
kept tensor is drawn or computed once, and may be changed or compared by its identity. Functions of
installed packages are taken to depend on nothing but their arguments, and to keep what nobody
changes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import functions

from hostjit import _C
from hostjit.capturing.dynamo.growing_lists import growth_forgotten
from hostjit.replacements import replaced_attribute

__all__ = [
    "is_installed_class",
    "is_installed_file",
    "is_kept_and_installed",
    "is_plain",
    "stopping_at_kept_results",
]

_KEEPING = type(functools.lru_cache(lambda: None))


def _installed_folders() -> tuple[str, ...]:
    """Return where packages are, those of `pip install --target` and `--user` among them."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {sysconfig.get_paths()[name] for name in names}
    found |= {os.path.dirname(os.path.dirname(torch.__file__)), os.path.dirname(_C.__file__)}
    # The metadata that an installer leaves beside a package (PEP 376, PEP 627).
    with_metadata = (path for path in sys.path if path and any(Path(path).glob("*.dist-info")))
    return tuple({*found, *map(os.path.abspath, with_metadata)})


_INSTALLED = _installed_folders()
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)


@contextlib.contextmanager
def stopping_at_kept_results() -> Iterator[None]:
    """Have Dynamo stop at calls of such functions, in this thread."""
    owner = threading.get_ident()
    kind = functions.WrapperUserFunctionVariable
    call = kind.call_function

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        wrapper = self.wrapper_obj
        if threading.get_ident() != owner or not isinstance(wrapper, _KEEPING):
            return call(self, tx, args, kwargs)
        with growth_forgotten(tx.output.side_effects):
            result = call(self, tx, args, kwargs)
        if not _is_installed(wrapper) and not _gives(self, args, kwargs, result):
            unimplemented(
                gb_type="kept result",
                context=str(getattr(wrapper, "__name__", wrapper)),
                explanation="functools.lru_cache keeps what the function returned before.",
                hints=[],
            )
        return result

    with replaced_attribute(kind, "call_function", call_function):
        yield


def is_installed_file(filename: str) -> bool:
    """Tell whether code is of Python's library or of an installed package."""
    return filename.startswith(_INSTALLED)


def is_installed_class(kind: type) -> bool:
    """Tell whether a class is of Python's library or of an installed package."""
    module = sys.modules.get(kind.__module__)
    return is_installed_file(getattr(module, "__file__", None) or "")


def is_kept_and_installed(function: Any) -> bool:
    """Tell whether it is a function of an installed package that `functools.lru_cache` keeps."""
    return isinstance(function, _KEEPING) and _is_installed(function)


def _is_installed(wrapper: Any) -> bool:
    code = getattr(wrapper.__wrapped__, "__code__", None)
    return code is None or is_installed_file(code.co_filename)


def _gives(function: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Tell whether the function that keeps its results gives what Dynamo found, a plain value."""
    values = (*function.self_args(), *args, *kwargs.values(), result)
    if not all(value.is_python_constant() for value in values):
        return False
    found = result.as_python_constant()
    if not is_plain(found):
        return False
    given = [value.as_python_constant() for value in (*function.self_args(), *args)]
    named = {name: value.as_python_constant() for name, value in kwargs.items()}
    try:
        kept = function.wrapper_obj(*given, **named)
    except Exception:  # such as of arguments that have no hash
        return False
    return _same(kept, found)


def is_plain(value: Any) -> bool:
    """Tell whether a result is one that Dynamo may go on with."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return isinstance(value, _PLAIN)


def _same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if type(first) is tuple:
        return len(first) == len(second) and all(map(_same, first, second))
    return repr(first) == repr(second) if isinstance(first, (float, complex)) else first == second
