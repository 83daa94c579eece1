# SPDX-License-Identifier: Apache-2.0
"""Conditions on sizes that a file has are arithmetic, and nothing else is evaluated."""

from __future__ import annotations

import pytest

import hostjit
from hostjit.capturing.guards.size_condition import SizeCondition


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("s0 % 2 == 0 and s1 >= 3", True),
        ("(s0 // 2)*s1 > 100 or not s0 < 4", True),
        ("max(s0, math.floor(s1 / 2)) == 4 and -s0 != s1 ** 2", True),
        ("2 <= s0 <= 3", False),
        ("True", True),
    ],
)
def test_arithmetic(text: str, holds: bool) -> None:
    assert SizeCondition.parse(["s0", "s1"], text)((4, 6)) is holds


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getpid()",
        "().__class__",
        "s0.real",
        "math.__loader__",
        "math.nothing(s0)",
        "[s0 for s0 in s1]",
        "(lambda: s0)()",
        "s2 > 1",
        "max",
        "eval(s0)",
        "s0(1)",
        "max(*s0)",
        "f'{s0}'",
        "'a' * s0",
        "(s0 := 3)",
        "s0 >",
        "",
    ],
)
def test_anything_else(text: str) -> None:
    with pytest.raises(hostjit.Error, match=r"a condition on sizes is no arithmetic: "):
        SizeCondition.parse(["s0", "s1"], text)


def test_names() -> None:
    with pytest.raises(hostjit.Error, match=r"a name is none"):
        SizeCondition.parse(["s0=print()"], "True")
