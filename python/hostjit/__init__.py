# SPDX-License-Identifier: Apache-2.0
"""hostjit: PyTorch programs at the speed of one function pointer.

import torch, hostjit

fast = hostjit.compile(model)
with torch.no_grad():
    y = fast(x)
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

import torch as _torch  # noqa: F401  # loads the libraries that the core links against

from hostjit.collection_pause import collection_paused as _collection_paused

with _collection_paused(lasting=True):
    from hostjit import backend as _backend
    from hostjit import cache, ir
    from hostjit import compiled_objects as _compiled_objects
    from hostjit.compile import compile
    from hostjit.dims import Dim
    from hostjit.dims import register as _register_dims
    from hostjit.errors import CaptureError, Error, InternalError
    from hostjit.knobs import knobs, runtime
    from hostjit.launching import Kernel, kernel, launch
    from hostjit.memory import cached_bytes, empty_cache, set_cache_limit
    from hostjit.recording import MismatchError, capture

if _TYPE_CHECKING:
    from hostjit.fusion import DataType, FusionDefinition
    from hostjit.saving.load import load
    from hostjit.saving.save import save

__version__ = _version("hostjit")

_backend.register()
_compiled_objects.register()
_register_dims()

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


def __getattr__(name: str) -> _Any:
    """Import what few programs need when it is asked for."""
    if name in ("DataType", "FusionDefinition"):
        from hostjit import fusion

        return getattr(fusion, name)
    if name == "load":
        from hostjit.saving.load import load

        return load
    if name == "save":
        from hostjit.saving.save import save

        return save
    raise AttributeError(f"module 'hostjit' has no attribute {name!r}")
