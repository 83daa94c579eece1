# SPDX-License-Identifier: Apache-2.0
"""Sizes, strides and offsets: numbers that are known, or polynomials in numbers that a call brings.

Everything that is decided while a kernel is made is decided by what holds for all values of the
symbols. Two sizes are equal if they are equal for all of them; there is no `<` between sizes, but
`at_most`, which says whether it is known.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = [
    "Size",
    "Symbol",
    "SymbolicSize",
    "as_size",
    "at_most",
    "ceildiv",
    "defined",
    "magnitude",
    "quotient",
    "symbols_in",
]

# What a symbol counts as where sizes are put in an order that only speed depends on.
_TYPICAL = 64


@dataclass(frozen=True, order=True)
class Symbol:
    """An `i64` number that a kernel is given at each call.

    Attributes:
        name: an identifier; symbols of one name are the same.
        least: the number is at least this.
        definition: how it is made of sizes, (operation, left, right), as `index_binary` says; None
            for one that comes from outside.
    """

    name: str
    least: int = field(default=2, compare=False)
    definition: tuple[str, Size, Size] | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return self.name


# The factors of a product, sorted, and how often it is counted.
_Product = tuple[Symbol, ...]
_Terms = dict[_Product, int]


class SymbolicSize:
    """A polynomial in symbols with whole coefficients that is no constant; see `as_size`."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: _Terms) -> None:
        self.terms = tuple(sorted(terms.items(), reverse=True, key=_rank))
        self._hash = hash(self.terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SymbolicSize) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        texts = []
        for product, factor in self.terms:
            names = [symbol.name for symbol in product]
            texts.append("*".join([str(factor), *names] if factor != 1 or not names else names))
        return "+".join(texts)

    def __add__(self, other: Size) -> Size:
        terms = dict(self.terms)
        for product, factor in _terms(other).items():
            terms[product] = terms.get(product, 0) + factor
        return _size(terms)

    def __mul__(self, other: Size) -> Size:
        terms: _Terms = {}
        pairs = itertools.product(self.terms, _terms(other).items())
        for (left, times), (right, more) in pairs:
            product = tuple(sorted((*left, *right)))
            terms[product] = terms.get(product, 0) + times * more
        return _size(terms)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def symbol(self) -> Symbol | None:
        """The symbol that this is and nothing else; None for other polynomials."""
        (product, factor), *others = self.terms
        return product[0] if not others and factor == 1 and len(product) == 1 else None

    def halves(self) -> tuple[str, Size, Size]:
        """What is no symbol alone, as "add" or "mul" of two smaller sizes."""
        (product, factor), *others = self.terms
        if others:
            return "add", _size(dict(others)), _size({product: factor})
        if factor != 1:
            return "mul", _size({product: 1}), factor
        return "mul", _size({product[:-1]: 1}), _size({product[-1:]: 1})


Size = int | SymbolicSize


def as_size(symbol: Symbol) -> SymbolicSize:
    """A symbol as a size."""
    return SymbolicSize({(symbol,): 1})


def defined(operation: str, left: Size, right: Size, least: int = 0) -> Size:
    """The result of an operation of `index_binary`, as a symbol of its own."""
    return as_size(
        Symbol(f"{operation}_{_word(left)}_{_word(right)}", least, (operation, left, right))
    )


def ceildiv(size: Size, divisor: int) -> Size:
    """How many parts of `divisor` a size has, the last of which may be smaller.

    Example: ceildiv(1000, 256) == 4
    """
    if not isinstance(size, SymbolicSize):
        return -(-size // divisor)
    exact = quotient(size, divisor)
    return exact if exact is not None else defined("ceildiv", size, divisor, int(at_most(1, size)))


def symbols_in(sizes: Iterable[Size]) -> list[Symbol]:
    """The symbols in sizes, in the order of their first appearance."""
    found: dict[Symbol, None] = {}
    for size in sizes:
        if isinstance(size, SymbolicSize):
            for product, _ in size.terms:
                found.update(dict.fromkeys(product))
    return list(found)


def at_most(low: Size, high: Size) -> bool:
    """Whether `low <= high` is known to hold.

    Each symbol is its least value and a rest; what has no negative part then is not negative.
    """
    rest = high - low
    if not isinstance(rest, SymbolicSize):
        return rest >= 0
    shifted: Size = 0
    for product, factor in rest.terms:
        term: Size = factor
        for symbol in product:
            term = term * (as_size(Symbol(symbol.name)) + symbol.least)
        shifted = shifted + term
    return all(factor >= 0 for factor in _terms(shifted).values())


def quotient(size: Size, divisor: Size) -> Size | None:
    """The size that `divisor` must be multiplied by; None if it is none for all values.

    Example: quotient(768 * s, 256) == 3 * s, and quotient(s + 1, s) is None
    """
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor if divisor and size % divisor == 0 else None
    if divisor == 0:
        return None
    first, times = max(_terms(divisor).items(), key=_rank)
    result: Size = 0
    while size != 0:
        product, factor = max(_terms(size).items(), key=_rank)
        left = _without(product, first)
        if left is None or factor % times:
            return None
        step = _size({left: factor // times})
        result = result + step
        size = size - step * divisor
    return result


def magnitude(size: Size) -> int:
    """A number to order sizes by, where only speed depends on their order."""
    if not isinstance(size, SymbolicSize):
        return abs(size)
    total: int = sum(factor * _TYPICAL ** len(product) for product, factor in size.terms)
    return abs(total) or _TYPICAL  # of a difference of two


def _word(size: Size) -> str:
    """A size in letters, digits and underscores."""
    words = {"*": "x", "+": "_plus_", "-": "minus"}
    return re.sub(r"[*+-]", lambda found: words[found.group()], repr(size))


def _rank(term: tuple[_Product, int]) -> tuple[int, list[str]]:
    return len(term[0]), [symbol.name for symbol in term[0]]


def _terms(size: Size) -> _Terms:
    if isinstance(size, SymbolicSize):
        return dict(size.terms)
    return {(): size} if size else {}


def _size(terms: _Terms) -> Size:
    left = {product: factor for product, factor in terms.items() if factor}
    return left.get((), 0) if not left.keys() - {()} else SymbolicSize(left)


def _without(product: _Product, factors: _Product) -> _Product | None:
    left = list(product)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)
