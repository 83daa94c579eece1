# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

from hostjit.replaced_items import replaced_items


def test_a_table_is_as_before_afterwards() -> None:
    table = {"a": 1, "b": 2, "c": 3}
    replaced = replaced_items(table, {"a": 10, "d": 40}, without=["b", "e"])
    with contextlib.suppress(KeyError), replaced:
        assert table == {"a": 10, "c": 3, "d": 40}
        table["f"] = 60  # another thread's
        raise KeyError
    assert table == {"a": 1, "b": 2, "c": 3, "f": 60}


def test_entries_stay_for_a_context_that_is_never_left() -> None:
    table = {"a": 1}
    replaced_items(table, {"a": 2}).__enter__()
    assert table == {"a": 2}
