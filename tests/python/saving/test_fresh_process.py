# SPDX-License-Identifier: Apache-2.0
"""What one process saved, another answers the same: without LLVM, by either runtime."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import saved_cases
import torch

import hostjit
from hostjit.saving.names import named_tensors

_HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case, saved after its calls, with what the same calls do next."""
    made: Path = tmp_path_factory.mktemp("saved")
    for name in saved_cases.CASES:
        case = saved_cases.make(name)
        make = hostjit.capture if case.recorded else hostjit.compile
        compiled = make(case.target, fallback=False, **case.options)
        saved_cases.results_of(compiled, case, list(named_tensors(case.target).values()))
        hostjit.save(compiled, made / f"{name}.hostjit")
        eager = copy.deepcopy(case.target) if isinstance(case.target, torch.nn.Module) else None
        if case.recorded:
            again = saved_cases.make(name)
            saved_cases.results_of(again.target, again, ())
            eager = again.target
        # In the fresh process the arguments are new, too.
        case.calls = saved_cases.make(name).calls
        tensors = list(named_tensors(compiled).values())
        expected = saved_cases.results_of(compiled, case, tensors)
        names = hostjit.load(made / f"{name}.hostjit", classes=saved_cases.CLASSES).parameters
        held = {key: x for key, x in named_tensors(compiled).items() if key in names}
        assert len(held) == len(names)
        expected.append(saved_cases.state_of(held))
        torch.save(expected, made / f"{name}.pt")
        if eager is not None:
            case.calls = saved_cases.make(name).calls
            by_eager = saved_cases.results_of(eager, case, list(named_tensors(eager).values()))
            held = {key: x for key, x in named_tensors(eager).items() if key in names}
            by_eager.append(saved_cases.state_of(held))
            assert saved_cases.same(by_eager, expected, exactly=False), name
    return made


@pytest.fixture(scope="module", params=["jit", "evaluator"])
def reports(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    environment = {**os.environ, "HOSTJIT_DISABLE": "object_cache"}
    done = subprocess.run(
        [sys.executable, str(_HERE / "call_saved.py"), str(folder), request.param],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return reports


@pytest.mark.parametrize("name", list(saved_cases.CASES))
def test_same_results_without_llvm(name: str, reports: dict[str, Any]) -> None:
    report = reports[name]
    assert report["same"], report
    assert report["recompiled"] == ""
    assert report["llvm"] == 0


def test_loading_imports_nothing_slow(reports: dict[str, Any]) -> None:
    found = {name: report["imported"] for name, report in reports.items()}
    assert not [name for name in found if found[name] and name not in saved_cases.IMPORTING]
