# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers; nothing is run where that is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import hostjit  # registers the backend

# Read when the library is imported: it must not look for anything on a network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

try:
    import transformers
except ImportError:
    collect_ignore_glob = ["test_*.py"]
else:
    transformers.logging.disable_progress_bar()


@pytest.fixture(autouse=True)
def _from_the_beginning() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture(params=["jit", "evaluator"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["hostjit.compile", "torch.compile"])
def compile_with(request: pytest.FixtureRequest, runtime: str) -> Any:
    """A function that compiles a model, either way; nothing may run eagerly."""
    if request.param == "hostjit.compile":
        return lambda model: hostjit.compile(model, runtime=runtime, fallback=False)
    options = {"runtime": runtime, "fallback": False}
    return lambda model: torch.compile(model, backend="hostjit", options=options)
