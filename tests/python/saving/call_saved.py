# SPDX-License-Identifier: Apache-2.0
"""A fresh process: loads every case of a folder, calls it, and prints what came of it as JSON.

python call_saved.py FOLDER RUNTIME
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import saved_cases
import torch

import hostjit

# What compiles, and takes as long to import as torch does.
_SLOW = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy", "llvmlite")


def _place(path: Path) -> tuple[bool, str]:
    return path.stem in saved_cases.IMPORTING, path.stem


def report(name: str, folder: Path, runtime: str) -> dict[str, Any]:
    case = saved_cases.make(name)
    loaded = hostjit.load(folder / f"{name}.hostjit", classes=saved_cases.CLASSES)
    expected = torch.load(folder / f"{name}.pt", weights_only=False)
    with hostjit.runtime(runtime):
        found = saved_cases.results_of(loaded, case, list(loaded.parameters.values()))
    found.append(saved_cases.state_of(loaded.parameters))
    # The evaluator rounds products and sums elsewhere.
    exactly = runtime == "jit"
    return {
        "same": saved_cases.same(found, expected, exactly=exactly),
        "recompiled": loaded.recompiled,
        "llvm": sum(loaded.timings()[stage] for stage in ("emit", "optimize", "generate")),
        "imported": [module for module in _SLOW if module in sys.modules],
    }


def main() -> None:
    folder, runtime = Path(sys.argv[1]), sys.argv[2]
    reports = {}
    for path in sorted(folder.glob("*.hostjit"), key=_place):
        try:
            reports[path.stem] = report(path.stem, folder, runtime)
        except Exception as error:
            reports[path.stem] = {"same": False, "error": repr(error)}
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
