# SPDX-License-Identifier: Apache-2.0
"""Options at run time: the grammar of HOSTJIT_ENABLE, HOSTJIT_DISABLE and HOSTJIT_DUMP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hostjit import _C

__all__ = ["knobs", "runtime", "table"]


@contextlib.contextmanager
def knobs(
    *,
    enable: str = "",
    disable: str = "",
    dump: str = "",
    dump_directory: str | None = None,
    cache_directory: str | None = None,
) -> Iterator[None]:
    """Lay options over the environment's, for the whole process, inside a `with` block.

    Args:
        enable: as in HOSTJIT_ENABLE.
        disable: as in HOSTJIT_DISABLE.
        dump: as in HOSTJIT_DUMP.
        dump_directory: as HOSTJIT_DUMP_DIR; None leaves it.
        cache_directory: as HOSTJIT_CACHE_DIR; None leaves it.

    Raises hostjit.Error that lists the valid names for an unknown one.

    Example:
        with hostjit.knobs(dump="host_ir,llvm_ir"):
            fast(x)
        with hostjit.knobs(disable="compile"):
            eager = fast(x)
    """
    ticket = _C.push_knobs(
        enable=enable,
        disable=disable,
        dump=dump,
        dump_directory=dump_directory,
        cache_directory=cache_directory,
    )
    try:
        yield
    finally:
        _C.pop_knobs(ticket)


@contextlib.contextmanager
def runtime(name: str) -> Iterator[None]:
    """Run compiled functions by "jit" or "evaluator" inside a `with` block; nothing recompiles.

    Example:
        with hostjit.runtime("evaluator"):
            reference = fast(x)
    """
    if name not in ("jit", "evaluator"):
        raise _C.Error(f"unknown runtime '{name}', expected 'jit' or 'evaluator'")
    option = {"enable": "host_ir_jit"} if name == "jit" else {"disable": "host_ir_jit"}
    with knobs(**option):
        yield


def table() -> str:
    """Return the table of all options, one line each."""
    rows = _C.knob_rows()
    header = {"variable": "variable", "name": "name", "argument": "argument"}
    header |= {"default": "default", "current": "now", "help": "what it does"}
    columns = ("variable", "name", "argument", "default", "current")
    widths = {c: max(len(row[c]) for row in [header, *rows]) for c in columns}
    return "\n".join(
        "  ".join([*(row[c].ljust(widths[c]) for c in columns), row["help"]])
        for row in [header, *rows]
    )
