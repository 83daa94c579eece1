# SPDX-License-Identifier: Apache-2.0
"""Sizes as registers: each is computed once, where the function begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from hostjit.kernels.sizes import Size, Symbol, SymbolicSize

__all__ = ["SizeValues"]

_INDEX = ir.IntType(64)


class SizeValues:
    """The sizes of one function, whose parameters `arguments` bring the numbers of `symbols`."""

    def __init__(self, builder: Any, symbols: Sequence[Symbol], arguments: Sequence[Any]) -> None:
        self._builder = builder
        self._products: dict[tuple[Symbol, ...], Any] = {
            (symbol,): argument for symbol, argument in zip(symbols, arguments, strict=True)
        }
        self._known: dict[SymbolicSize, Any] = {}

    def value(self, size: Size) -> Any:
        """The `i64` register or constant that holds a size."""
        if not isinstance(size, SymbolicSize):
            return ir.Constant(_INDEX, size)
        if size not in self._known:
            with self._builder.goto_entry_block():
                self._known[size] = self._sum(size)
        return self._known[size]

    def _sum(self, size: SymbolicSize) -> Any:
        total: Any = None
        for product, factor in size.terms:
            term = self._product(product) if product else ir.Constant(_INDEX, factor)
            if product and factor != 1:
                term = self._builder.mul(term, ir.Constant(_INDEX, factor), flags=("nsw",))
            total = term if total is None else self._builder.add(total, term, flags=("nsw",))
        return total

    def _product(self, product: tuple[Symbol, ...]) -> Any:
        if product not in self._products:
            first, last = self._product(product[:-1]), self._product(product[-1:])
            flags = ("nuw", "nsw") if all(symbol.least >= 0 for symbol in product) else ("nsw",)
            self._products[product] = self._builder.mul(first, last, flags=flags)
        return self._products[product]
