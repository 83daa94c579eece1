# SPDX-License-Identifier: Apache-2.0
"""Code may read what modules hold or compute: Python's own, PyTorch's settings, others."""

from __future__ import annotations

import functools
import os
import tempfile
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

COMPILERS: dict[str, Any] = {
    "hostjit": hostjit.compile,
    "torch": functools.partial(torch.compile, backend="hostjit"),
}
READS: dict[str, Callable[[], Any]] = {
    "getenv": lambda: os.getenv("HOSTJIT_TESTS"),
    "getenv with a default": lambda: os.getenv("HOSTJIT_TESTS", "3"),
    "environ.get": lambda: os.environ.get("HOSTJIT_TESTS"),
    "in environ": lambda: "HOSTJIT_TESTS" in os.environ,
    "gettempdir": tempfile.gettempdir,
    "setting": lambda: torch.backends.cudnn.benchmark,
}


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_changes_is_read(read: str, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> tuple[Tensor, Any]:
        return x * 2, READS[read]()

    def call(of: Callable[[Tensor], tuple[Tensor, Any]], flag: bool) -> Any:
        with torch.backends.cudnn.flags(enabled=True, benchmark=flag):
            return of(torch.ones(3))[1]

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("HOSTJIT_TESTS", raising=False)
    torch.compiler.reset()
    fast = COMPILERS[compiler](function)
    found = [call(fast, False)]
    assert found == [call(function, False)]
    for number in range(3):
        monkeypatch.setenv("HOSTJIT_TESTS", str(number))
        monkeypatch.setattr(tempfile, "tempdir", f"/{number}")
        found.append(call(fast, number % 2 == 0))
        assert found[-1] == call(function, number % 2 == 0)
    assert found[0] != found[1]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_a_module_computes_is_asked_again(compiler: str) -> None:
    module, numbers = types.ModuleType("computing"), [1]
    module.__getattr__ = lambda name: numbers[0]  # type: ignore[method-assign]
    torch.compiler.reset()
    fast = COMPILERS[compiler](lambda x: x * module.number)
    for number in (1, 2, 3):
        numbers[0] = number
        assert torch.equal(fast(torch.ones(2)), torch.full((2,), float(number)))
