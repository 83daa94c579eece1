# SPDX-License-Identifier: Apache-2.0
"""Frames of `__torch_function__`, which are compiled with what calls them, and not alone.

Dynamo's code for one alone asks the tensors of the class for their sizes: by `__torch_function__`.
"""

from __future__ import annotations

import types

__all__ = ["overrides_operators"]

_NAMES = frozenset({"__torch_function__", "__torch_dispatch__"})


def overrides_operators(code: types.CodeType) -> bool:
    """Tell whether PyTorch calls code in the place of an operator."""
    return code.co_name in _NAMES
