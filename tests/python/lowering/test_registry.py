# SPDX-License-Identifier: Apache-2.0
"""The table of rules."""

from __future__ import annotations

import pytest
import torch

from hostjit.lowering import grouping  # noqa: F401  (fills the tables)
from hostjit.lowering.pointwise import creates, pointwise
from hostjit.lowering.registry import Registry


def test_find_and_duplicates() -> None:
    rules: Registry = Registry("lowering rule")

    @rules("aten.mm.default", "aten.bmm.default")
    def lower(context: object, node: object) -> None: ...

    assert rules.find(torch.ops.aten.mm.default) is lower
    assert rules.find(torch.ops.aten.addmm.default) is None
    assert rules.names() == ["aten.bmm.default", "aten.mm.default"]
    with pytest.raises(ValueError, match=r"^'aten.mm.default' already has a lowering rule$"):
        rules("aten.mm.default")(lower)


def test_no_overload_has_two_kinds_of_rule() -> None:
    assert not set(pointwise.names()) & set(creates.names())
