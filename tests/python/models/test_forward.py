# SPDX-License-Identifier: Apache-2.0
"""Forward passes of whole models, compiled either way, on both runtimes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from same_as_eager import assert_same
from small_models import MODELS, make_model

# They copy their configurations in every call.
COPYING = ("t5", "whisper")


@pytest.mark.filterwarnings("error:hostjit")
@pytest.mark.parametrize("name", MODELS)
def test_forward(name: str, compile_with: Any) -> None:
    if name in COPYING and torch.__version__ < (2, 12):
        pytest.skip("Dynamo does not follow copy.deepcopy: it runs in parts")
    model, inputs = make_model(name)
    compiled = compile_with(model)
    with torch.no_grad():
        expected = model(**inputs)
        for _ in range(2):
            assert_same(compiled(**inputs), expected)
