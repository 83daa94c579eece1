# SPDX-License-Identifier: Apache-2.0
"""Calls that raise in eager mode raise the same, and nothing is said of what cannot be captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

import hostjit

pytestmark = pytest.mark.filterwarnings("error:hostjit")


def exported() -> Any:
    rows = Dim("rows", min=2, max=8)
    program = export(nn.Linear(3, 3), (torch.ones(2, 3),), dynamic_shapes=({0: rows},))
    return program.module()


def of_other_weight(x: Tensor) -> Tensor:
    return nn.functional.linear(x, torch.ones(3, 3), torch.ones(3, dtype=torch.float64))


PROGRAMS: dict[str, tuple[Callable[[], Any], Tensor]] = {
    "weights of another dtype": (lambda: nn.Linear(3, 3).double(), torch.ones(2, 3)),
    "a bias of another dtype": (lambda: of_other_weight, torch.ones(2, 3)),
    "a batched product": (lambda: lambda x: torch.bmm(x, x.double()), torch.ones(2, 3, 3)),
    "a vector": (lambda: lambda x: torch.mv(x, x[0].double()), torch.ones(3, 3)),
    "an exported program": (exported, torch.ones(9, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_are_those_of_eager_mode(name: str) -> None:
    make, x = PROGRAMS[name]
    eager = make()
    fast = hostjit.compile(eager)
    with pytest.raises(Exception) as expected:  # whatever eager mode raises
        eager(x)
    for _ in range(2):
        with pytest.raises(type(expected.value)) as found:
            fast(x)
        assert str(found.value).split("\n")[0] == str(expected.value).split("\n")[0]
