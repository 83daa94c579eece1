# SPDX-License-Identifier: Apache-2.0
"""Sizes that are known only at a call: what is decided about them without knowing them."""

import pytest

from hostjit.kernels.sizes import Symbol, as_size, at_most, magnitude, quotient, symbols_in

s, t = as_size(Symbol("s")), as_size(Symbol("t"))


def test_equal_polynomials_are_equal_sizes() -> None:
    assert s * (t + 1) == s * t + s
    assert hash(2 * s) == hash(s + s)
    assert s * 768 != s * 767
    assert s != 2


def test_a_difference_may_be_a_number() -> None:
    assert (s + 3) - s == 3
    assert isinstance(s * t - t * s, int)
    assert 5 - (5 - s) == s


def test_the_order_of_sizes_is_what_holds_for_all_of_them() -> None:
    assert at_most(2, s)
    assert not at_most(3, s)
    assert at_most(s, s * t)
    assert at_most(s + t, s * t)
    assert not at_most(s, t)
    assert at_most(1, s - 1)
    assert not at_most(1, s - 2)
    assert at_most(5, 4) is False


def test_quotients_are_exact_or_none() -> None:
    assert quotient(768 * s, 256) == 3 * s
    assert quotient(s * t + s, t + 1) == s
    assert quotient(s * s * t, s) == s * t
    assert quotient(s + 1, s) is None
    assert quotient(3 * s, 2) is None
    assert quotient(2, s) is None
    assert quotient(12, 4) == 3
    assert quotient(0, s) == 0


def test_sizes_have_no_order_of_their_own() -> None:
    with pytest.raises(TypeError):
        assert s < 5  # type: ignore[operator]


def test_larger_products_have_larger_magnitudes() -> None:
    assert magnitude(768) < magnitude(768 * s) < magnitude(768 * s * t)
    assert magnitude(-4) == 4


def test_symbols_are_found_once() -> None:
    assert [symbol.name for symbol in symbols_in([3, s * t, t + 1])] == ["s", "t"]


def test_the_text_of_a_size_is_its_value() -> None:
    assert repr(768 * s * t + s + 1) == repr(1 + s + t * s * 768)
