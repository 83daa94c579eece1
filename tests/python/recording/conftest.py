# SPDX-License-Identifier: Apache-2.0
"""What the tests of recordings ask for by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hostjit


@pytest.fixture(params=["jit", "evaluator"])
def each_runtime(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test in one runtime and in the other, where it chooses none itself."""
    with hostjit.runtime(request.param):
        yield request.param
