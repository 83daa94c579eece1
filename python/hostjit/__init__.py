# SPDX-License-Identifier: Apache-2.0
"""hostjit: PyTorch programs at the speed of one function pointer.

import torch, hostjit

fast = hostjit.compile(model)
with torch.no_grad():
    y = fast(x)
"""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import torch as _torch  # noqa: F401  # loads the libraries that the core links against

from hostjit import cache, ir
from hostjit.compile import compile
from hostjit.dims import Dim
from hostjit.dims import register as _register_dims
from hostjit.dynamo_import import when_dynamo_is_imported as _when_dynamo_is_imported
from hostjit.errors import CaptureError, Error, InternalError
from hostjit.knobs import knobs, runtime
from hostjit.memory import cached_bytes, empty_cache, set_cache_limit
from hostjit.pickling import register as _register_pickling
from hostjit.recording import MismatchError, capture

if _TYPE_CHECKING:
    from hostjit.fusion import DataType, FusionDefinition
    from hostjit.launching import Kernel, kernel, launch
    from hostjit.saving.load import load
    from hostjit.saving.save import save

__version__ = _version("hostjit")


def _tell_dynamo() -> None:
    _import_module("hostjit.backend")  # which registers itself
    from hostjit.capturing.dynamo import compiled_objects

    compiled_objects.register()


_register_dims()
_register_pickling()
_when_dynamo_is_imported(_tell_dynamo)

__all__ = [
    "CaptureError",
    "DataType",
    "Dim",
    "Error",
    "FusionDefinition",
    "InternalError",
    "Kernel",
    "MismatchError",
    "__version__",
    "cache",
    "cached_bytes",
    "capture",
    "compile",
    "empty_cache",
    "ir",
    "kernel",
    "knobs",
    "launch",
    "load",
    "runtime",
    "save",
    "set_cache_limit",
]


# What few programs need, or what takes long to import, by the module that has it.
_LATER = {
    "DataType": "hostjit.fusion",
    "FusionDefinition": "hostjit.fusion",
    "Kernel": "hostjit.launching",
    "kernel": "hostjit.launching",
    "launch": "hostjit.launching",
    "load": "hostjit.saving.load",
    "save": "hostjit.saving.save",
}


def __getattr__(name: str) -> _Any:
    """Import what is in no module yet when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'hostjit' has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(_LATER[name]), name)
    return value
