# SPDX-License-Identifier: Apache-2.0
"""Whether eager mode has an LSTM under autocast: oneDNN's in bfloat16, which needs AVX-512."""

from __future__ import annotations

import pytest
import torch

__all__ = ["skip_without"]


def skip_without(name: str) -> None:
    """Skip a test of the layer `name` where eager mode raises for it under autocast."""
    is_onednns = "LSTM" in name and "projections" not in name
    if is_onednns and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("eager mode has no LSTM in bfloat16 on this CPU")
