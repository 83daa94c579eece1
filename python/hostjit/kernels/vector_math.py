# SPDX-License-Identifier: Apache-2.0
"""The mathematical functions that kernels call by name.

A kernel declares the scalar form, for example `declare float @hostjit_exp_f32(float)`. The core
defines it (libm has each under the same name) and attaches Sleef's vector forms from libtorch_cpu,
so that LLVM's vectoriser may use them. `csrc/codegen/vector_math.h` holds the same list.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["VECTOR_MATH", "VectorMathFunction"]


@dataclass(frozen=True)
class VectorMathFunction:
    """One function: its name in kernels, Sleef's base name and accuracy suffix, its arity."""

    name: str
    sleef_base: str
    sleef_suffix: str
    arity: int

    def symbol(self, dtype: str) -> str:
        """The scalar symbol that a kernel calls; `dtype` is "f32" or "f64"."""
        return f"hostjit_{self.name}_{dtype}"

    def sleef_symbol(self, dtype: str, lanes: int) -> str:
        """Sleef's symbol for `lanes` elements.

        The x86-64 wheels export 8 and 16 lanes of f32, 4 and 8 of f64; there is no scalar form.
        """
        letter = {"f32": "f", "f64": "d"}[dtype]
        return f"Sleef_{self.sleef_base}{letter}{lanes}{self.sleef_suffix}"


VECTOR_MATH: dict[str, VectorMathFunction] = {
    name: VectorMathFunction(name, name, suffix, arity)
    for name, suffix, arity in (
        ("exp", "_u10", 1),
        ("exp2", "_u10", 1),
        ("expm1", "_u10", 1),
        ("log", "_u10", 1),
        ("log1p", "_u10", 1),
        ("log2", "_u10", 1),
        ("log10", "_u10", 1),
        ("sin", "_u10", 1),
        ("cos", "_u10", 1),
        ("tan", "_u10", 1),
        ("asin", "_u10", 1),
        ("acos", "_u10", 1),
        ("atan", "_u10", 1),
        ("sinh", "_u10", 1),
        ("cosh", "_u10", 1),
        ("tanh", "_u10", 1),
        ("asinh", "_u10", 1),
        ("acosh", "_u10", 1),
        ("atanh", "_u10", 1),
        ("erf", "_u10", 1),
        ("erfc", "_u15", 1),
        ("lgamma", "_u10", 1),
        ("atan2", "_u10", 2),
        ("pow", "_u10", 2),
        ("hypot", "_u05", 2),
        ("fmod", "", 2),
    )
}
