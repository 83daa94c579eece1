# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

import pytest

from hostjit.replacements import replaced_attribute, replaced_items


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


class _Base:
    @staticmethod
    def plain() -> int:
        return 1

    def method(self) -> int:
        return 2


class _Derived(_Base):
    @classmethod
    def of_class(cls) -> str:
        return cls.__name__


def test_attributes_are_as_before_afterwards() -> None:
    before = dict(vars(_Base)), dict(vars(_Derived))
    with contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
        stack.enter_context(replaced_attribute(_Base, "plain", staticmethod(lambda: 10)))
        stack.enter_context(replaced_attribute(_Derived, "method", lambda _: 20))
        stack.enter_context(replaced_attribute(_Derived, "of_class", classmethod(lambda _: "x")))
        stack.enter_context(replaced_attribute(_Derived, "new", 5, create=True))
        assert _Base.plain() == 10
        assert _Base().method() == 2 and _Derived().method() == 20
        assert _Derived.of_class() == "x" and _Derived.new == 5  # type: ignore[attr-defined]
        raise KeyError
    assert (dict(vars(_Base)), dict(vars(_Derived))) == before


def test_an_attribute_of_an_object() -> None:
    owner = _Base()
    with replaced_attribute(owner, "method", lambda: 3):
        assert owner.method() == 3
    assert owner.method() == 2 and not vars(owner)


def test_an_attribute_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="absent"), replaced_attribute(_Base, "absent", 1):
        pass
    assert not hasattr(_Base, "absent")
