# SPDX-License-Identifier: Apache-2.0
"""What is known of code that was made of other code."""

from __future__ import annotations

from hostjit.bytecode.made_code import is_of_choice, note_made, note_way, origin_of


def function() -> int:
    return 1


def test_code_that_is_equal_is_other_code() -> None:
    origin = function.__code__
    first, second = origin.replace(co_name="made"), origin.replace(co_name="made")
    assert first == second
    note_made(first, origin)
    assert origin_of(second) is second
    note_way(second, origin)
    assert is_of_choice(second)
    assert not is_of_choice(first)
    del first
    assert origin_of(second) is origin
