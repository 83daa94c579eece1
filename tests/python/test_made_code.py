# SPDX-License-Identifier: Apache-2.0
"""What is known of code that was made of other code."""

from __future__ import annotations

from torch._dynamo.bytecode_transformation import cleaned_instructions

from hostjit.bytecode.flow import CodeFlow
from hostjit.bytecode.made_code import is_of_choice, note_made, note_way, origin_of
from hostjit.bytecode.returns import with_one_return


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


def with_two_sides(x: int) -> int:
    y = x - 1
    if x > 0:  # noqa: SIM108
        y = x * 2
    else:
        y = y + 3
    return y


def test_a_return_that_sides_share_is_no_loop() -> None:
    """From CPython 3.12 on, the second side jumps back to that of the first one."""
    made = with_one_return(with_two_sides)
    assert CodeFlow(cleaned_instructions(made.__code__), made.__code__).loops() == {}
    assert [made(x) for x in (1, -1)] == [2, 1]
