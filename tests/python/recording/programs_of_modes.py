# SPDX-License-Identifier: Apache-2.0
"""Programs whose results depend on settings that C code reads without being asked for them."""

from __future__ import annotations

import decimal
import functools
import itertools
import locale
import operator
import sys
import threading
import warnings
from typing import Any

import numpy
import torch
from program_list import Programs, Step, Wrap

__all__ = ["PROGRAMS", "RUN_EAGERLY"]

PROGRAMS = Programs()
RUN_EAGERLY = frozenset({"decimal_kept", "decimal_given"})
Decimal, Distribution = decimal.Decimal, torch.distributions.Distribution
deterministic = torch.utils.deterministic
kept, in_dict = Decimal(1), {"D": Decimal}
one, zero, zeros, divide = numpy.float64(1.0), numpy.float64(0.0), numpy.zeros(2), numpy.divide
threads, warn = torch.get_num_threads, warnings.warn
count = torch.get_num_threads()


def _digits(value: Any) -> float:
    return float(sum(map(ord, str(value))) % 9973)


def _context(name: str) -> Any:
    return lambda value: setattr(decimal.getcontext(), name, value)


def _trap(wanted: bool) -> None:
    decimal.getcontext().traps[decimal.DivisionByZero] = wanted


def _divides(make: Any) -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * float(numpy.isinf(make()).sum() + 1)
        except FloatingPointError:
            return x * 7

    return function


def _errors(how: str) -> None:
    numpy.seterr(all=how)


def _filter(action: str) -> None:
    warnings.simplefilter(action)


def _errors_by_warning(action: str) -> None:
    numpy.seterr(all="warn")
    warnings.simplefilter(action)


def _warns(x: torch.Tensor) -> torch.Tensor:
    try:
        warnings.warn("a text", UserWarning, stacklevel=1)
    except UserWarning:
        return x * 3
    return x * 2


def _warns_uncaught(x: torch.Tensor) -> torch.Tensor:
    warnings.warn("a text", DeprecationWarning, stacklevel=1)
    return x * 2


def _warns_by_map(x: torch.Tensor) -> torch.Tensor:
    try:
        next(map(warn, ["a text"]))
    except UserWarning:
        return x * 3
    return x * 2


def _warns_in_numpy(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * float(numpy.log(zeros)[0] < 0)
    except RuntimeWarning:
        return x * 4


def _warns_of_nothing(x: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("a text", stacklevel=1)
    return x * 2


def _in_local_context(x: torch.Tensor) -> torch.Tensor:
    with decimal.localcontext():
        return x * float(Decimal(1) / 3)


def _in_local_errors(x: torch.Tensor) -> torch.Tensor:
    with numpy.errstate(all="ignore"):
        return x * float(divide(1.0, 0.0) > 5)


def _in_autocast(x: torch.Tensor) -> tuple[torch.dtype, torch.Tensor]:
    with torch.autocast("cpu"):
        product = torch.full((2, 2), 1.001) @ torch.full((2, 2), 1.001)
    return product.float() * x


def _threads(number: int) -> None:
    torch.set_num_threads(number or count)


def _autocast(dtype: torch.dtype) -> None:
    torch.set_autocast_dtype("cpu", dtype)


def _locale(name: str) -> None:
    locale.setlocale(locale.LC_NUMERIC, name)


def _sparse_checks(wanted: bool) -> None:
    checks = torch.sparse.check_sparse_tensor_invariants
    checks.enable() if wanted else checks.disable()


def _strict(wanted: bool) -> None:
    torch.use_deterministic_algorithms(wanted, warn_only=True)


def _warn_only(wanted: bool) -> None:
    torch.use_deterministic_algorithms(wanted, warn_only=wanted)


for name, function, set_to, before, now in (
    ("decimal_precision", lambda x: x * float(Decimal(1) / 3), _context("prec"), 28, 2),
    ("decimal_in_dict", lambda x: x * float(in_dict["D"](1) / 3), _context("prec"), 28, 2),
    ("decimal_kept", lambda x: x * float(kept / 3), _context("prec"), 28, 2),
    (
        *("decimal_rounding", lambda x: x * float(Decimal("1.25").quantize(Decimal("0.1")))),
        *(_context("rounding"), decimal.ROUND_HALF_EVEN, decimal.ROUND_UP),
    ),
    ("decimal_traps", lambda x: x * float(Decimal(1) / 0 > 5), _trap, True, False),
    ("decimal_local", _in_local_context, _context("prec"), 28, 2),
    ("numpy_errors_of_scalars", _divides(lambda: one / zero), _errors, "warn", "raise"),
    ("numpy_errors_of_arrays", _divides(lambda: 1.0 / zeros), _errors, "warn", "raise"),
    ("numpy_errors_of_ufunc", _divides(lambda: divide(1.0, 0.0)), _errors, "warn", "raise"),
    ("numpy_errors_asked", lambda x: x * len(numpy.geterr()["divide"]), _errors, "warn", "raise"),
    ("numpy_errors_local", _in_local_errors, _errors, "warn", "raise"),
    ("numpy_warns", _warns_in_numpy, _errors_by_warning, "ignore", "error"),
    ("warns", _warns, _filter, "ignore", "error"),
    ("warns_uncaught", _warns_uncaught, _filter, "ignore", "error"),
    ("warns_by_map", _warns_by_map, _filter, "ignore", "error"),
    ("warns_of_nothing", _warns_of_nothing, _filter, "ignore", "ignore"),
    ("formatted_for_locale", lambda x: x * _digits(f"{1234567:n}"), _locale, "C", "C.UTF-8"),
    (
        "printed_precision",
        lambda x: x * _digits(torch.tensor(1.23456)),
        lambda n: torch.set_printoptions(precision=n),
        4,
        2,
    ),
    ("autocast_by_default", _in_autocast, _autocast, torch.bfloat16, torch.float16),
    (
        "autocast_cache",
        lambda x: x * (2 if torch.is_autocast_cache_enabled() else 3),
        torch.set_autocast_cache_enabled,
        True,
        False,
    ),
    (
        "default_dtype",
        lambda x: x * torch.ones(()).itemsize,
        torch.set_default_dtype,
        torch.float32,
        torch.float64,
    ),
    (
        "deterministic",
        lambda x: x * (2 if torch.are_deterministic_algorithms_enabled() else 3),
        _strict,
        False,
        True,
    ),
    (
        "deterministic_warning",
        lambda x: x * (2 if torch.is_deterministic_algorithms_warn_only_enabled() else 3),
        _warn_only,
        False,
        True,
    ),
    (
        "deterministic_filling",
        lambda x: x * (2 if deterministic.fill_uninitialized_memory else 3),
        lambda v: setattr(deterministic, "fill_uninitialized_memory", v),
        True,
        False,
    ),
    ("threads_partial", lambda x: x * functools.partial(threads)(), _threads, 0, count + 1),
    (
        "threads_starmap",
        lambda x: x * next(itertools.starmap(threads, [()])),
        _threads,
        0,
        count + 1,
    ),
    (
        "threads_by_operator",
        lambda x: x * operator.call(torch.get_num_threads),
        _threads,
        0,
        count + 1,
    ),
    ("threads_in_list", lambda x: x * [torch.get_num_threads][0](), _threads, 0, count + 1),
    (
        "precision_of_products",
        lambda x: x * _digits(torch.get_float32_matmul_precision()),
        torch.set_float32_matmul_precision,
        "highest",
        "high",
    ),
    (
        "cudnn_deterministic",
        lambda x: x * (2 if torch.backends.cudnn.deterministic else 3),
        torch._C._set_cudnn_deterministic,  # torch.testing may have frozen the flag
        False,
        True,
    ),
    (
        "einsum_strategy",
        lambda x: x * len(torch.backends.opt_einsum.strategy or ""),
        lambda v: setattr(torch.backends.opt_einsum, "strategy", v),
        "auto",
        "greedy",
    ),
    (
        "einsum_computed",
        lambda x: x * len(getattr(torch.backends.opt_einsum, "strat" + "egy")),
        lambda v: setattr(torch.backends.opt_einsum, "strategy", v),
        "auto",
        "greedy",
    ),
    (
        "converts_in_place",
        lambda x: x * (2 if torch.__future__.get_overwrite_module_params_on_conversion() else 3),
        torch.__future__.set_overwrite_module_params_on_conversion,
        False,
        True,
    ),
    (
        "sparse_checks",
        lambda x: x * (2 if torch.sparse.check_sparse_tensor_invariants.is_enabled() else 3),
        _sparse_checks,
        False,
        True,
    ),
    (
        *("distributions_check", lambda x: x * (2 if Distribution._validate_args else 3)),
        *(Distribution.set_default_validate_args, False, True),  # a capture switches them off
    ),
    (
        "longest_number",
        lambda x: x * (2 if sys.get_int_max_str_digits() else 3),
        sys.set_int_max_str_digits,
        4300,
        0,
    ),
):
    PROGRAMS.changes(name, function, set_to, before, now)

PROGRAMS.changes(
    *("decimal_given", lambda x, d: x * float(d / 3), _context("prec"), 28, 2, Decimal(1))
)


@PROGRAMS.register
def decimal_threads(wrap: Wrap) -> Step:
    f = wrap(lambda x: x * float(Decimal(1) / 3))

    def call(i):
        found = []

        def work():
            decimal.getcontext().prec = 3 + i // 3
            found.append(f(torch.ones(2)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found

    return call
