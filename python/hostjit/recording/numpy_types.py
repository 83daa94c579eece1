# SPDX-License-Identifier: Apache-2.0
"""NumPy's types, as far as recordings meet them; none where it is not installed."""

from __future__ import annotations

import os

try:
    import numpy
except ImportError:  # PyTorch can do without
    ARRAYS: tuple[type, ...] = ()
    CONSTANTS: tuple[type, ...] = ()
    RANDOM_SOURCES: tuple[type, ...] = ()
    FOLDERS: tuple[str, ...] = ()
else:
    ARRAYS = (numpy.ndarray, numpy.void)  # the latter is a view of a row
    CONSTANTS = (
        *(numpy.dtype, numpy.ufunc, numpy.number, numpy.bool_, numpy.character),
        numpy.datetime64,
    )
    RANDOM_SOURCES = (
        numpy.random.RandomState,
        numpy.random.Generator,
        numpy.random.BitGenerator,
    )
    FOLDERS = (os.path.dirname(os.path.abspath(numpy.__file__)) + os.sep,)

__all__ = ["ARRAYS", "CONSTANTS", "FOLDERS", "RANDOM_SOURCES"]
