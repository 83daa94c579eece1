# SPDX-License-Identifier: Apache-2.0
"""Runs CPython's tests of one of its modules, all of whose loops call functions for their passes.

python outlined_library.py textwrap test.test_textwrap
"""

from __future__ import annotations

import importlib
import sys
import types
import unittest
from collections.abc import Iterator

from hostjit.bytecode.loops import PassVariables, lines_of_loops, with_compiled_passes


def unchanged(code: types.CodeType, _: PassVariables | None = None) -> types.CodeType:
    return code


def outlined(code: types.CodeType) -> types.CodeType:
    """Replace loops one by one, in functions inside, too."""
    constants = (outlined(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    code = code.replace(co_consts=tuple(constants))
    for line in sorted(lines_of_loops(code)):
        made = with_compiled_passes(code, {}, {line}, unchanged, unchanged)
        if made is not None:
            code = made
    return code


def functions_of(module: types.ModuleType) -> Iterator[types.FunctionType]:
    values = list(vars(module).values())
    values += [each for kind in values if isinstance(kind, type) for each in vars(kind).values()]
    for value in values:
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
            yield function


def main(name: str, tests: str) -> int:
    changed = 0
    for function in functions_of(importlib.import_module(name)):
        before = function.__code__
        function.__code__ = outlined(before)
        changed += function.__code__ != before
    found = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromName(tests))
    print(f"{changed} functions changed, {found.testsRun} tests")
    return int(not changed or not found.wasSuccessful())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
