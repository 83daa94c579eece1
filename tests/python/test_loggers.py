# SPDX-License-Identifier: Apache-2.0
"""Calls of loggers that say nothing are compiled; the others say what they do in eager mode."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.capturing.dynamo import kept_results

Compiler = Callable[..., Any]
PARENT = logging.getLogger("hostjit tests")
LOGGER = logging.getLogger("hostjit tests.a.model")
COMPILERS = {
    "hostjit": hostjit.compile,
    "torch": functools.partial(torch.compile, backend="hostjit"),
}


@pytest.fixture(params=COMPILERS)
def compiled(request: pytest.FixtureRequest) -> Compiler:
    torch.compiler.reset()
    return COMPILERS[request.param]


@pytest.fixture(autouse=True)
def said() -> Iterator[list[str]]:
    """What loggers say, whose levels are as before afterwards."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    loggers = (PARENT, LOGGER)
    before = [(logger.level, logger.disabled) for logger in loggers]
    PARENT.addHandler(handler)
    PARENT.propagate = False
    yield found
    PARENT.removeHandler(handler)
    logging.disable(logging.NOTSET)
    for logger, (level, disabled) in zip(loggers, before, strict=True):
        logger.level, logger.disabled = level, disabled
        logger.setLevel(level)


def tells(x: Tensor) -> Tensor:
    y = x.sin()
    LOGGER.debug("of %s", y.dtype)
    LOGGER.log(logging.INFO, "info %s", "text")
    if LOGGER.isEnabledFor(logging.DEBUG):
        y = y + 1
    LOGGER.info("the size is %d", x.numel())
    return y * 2


def test_one_program_where_the_level_is_off(said: list[str]) -> None:
    fast = hostjit.compile(tells, fallback=False)
    x = torch.randn(5)
    for _ in range(3):
        assert_close(fast(x), tells(x))
    assert len(fast.specializations) == 1
    assert said == []


def test_no_graph_break_where_the_level_is_off(said: list[str]) -> None:
    fast = torch.compile(tells, backend="hostjit", fullgraph=True)
    x = torch.randn(5)
    assert_close(fast(x), tells(x))
    assert said == []


def counts(x: Tensor) -> Tensor:
    LOGGER.warning("begins")
    y = x.sin()
    LOGGER.warning("has %d", x.numel())
    return y + 1


@pytest.mark.filterwarnings("ignore:hostjit")
def test_records_name_the_lines_of_the_code() -> None:
    places: list[tuple[str, int]] = []
    handler = logging.Handler()

    def note(record: logging.LogRecord) -> None:
        places.append((record.pathname, record.lineno))

    handler.emit = note  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    try:
        counts(torch.ones(2))
        expected = places.copy()
        fast = hostjit.compile(counts)
        for _ in range(4):
            places.clear()
            fast(torch.ones(2))
            assert places == expected
    finally:
        LOGGER.removeHandler(handler)


CHANGES: dict[str, Callable[[], Any]] = {
    "its level": lambda: LOGGER.setLevel(logging.DEBUG),
    "its level, info": lambda: LOGGER.setLevel(logging.INFO),
    "the level above": lambda: PARENT.setLevel(logging.DEBUG),
    "a logger in between": lambda: logging.getLogger("hostjit tests.a").setLevel(logging.DEBUG),
}


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("change", CHANGES)
def test_levels_that_change_are_heeded(change: str, compiled: Compiler, said: list[str]) -> None:
    PARENT.setLevel(logging.WARNING)
    logging.getLogger("hostjit tests.a").setLevel(logging.NOTSET)
    fast = compiled(tells)
    x = torch.randn(5)

    def check() -> None:
        assert_close(fast(x), tells(x))
        half = len(said) // 2
        assert said[:half] == said[half:]
        said.clear()

    check()
    CHANGES[change]()
    check()
    logging.disable(logging.CRITICAL)
    check()
    logging.disable(logging.NOTSET)
    check()
    LOGGER.disabled = True
    check()
    LOGGER.disabled = False
    tells(x)
    assert said
    said.clear()
    check()


def tells_all(x: Tensor) -> Tensor:
    y = x.sin()
    logging.info("of %s", y.dtype)
    return y * 2


@pytest.mark.filterwarnings("ignore:hostjit")
def test_functions_of_the_root_logger(
    compiled: Compiler, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [*PARENT.handlers])
    monkeypatch.setattr(root, "level", logging.WARNING)
    root.setLevel(logging.WARNING)
    options = {"fallback": False} if compiled is hostjit.compile else {"fullgraph": True}
    fast = compiled(tells_all, **options)
    x = torch.randn(5)
    for _ in range(2):
        assert_close(fast(x), tells_all(x))
    assert said == []
    fast = compiled(tells_all)
    assert_close(fast(x), tells_all(x))
    root.setLevel(logging.INFO)
    assert_close(fast(x), tells_all(x))
    assert said == ["of torch.float32"] * 2
    root.setLevel(logging.WARNING)
    root.handlers.clear()
    assert_close(fast(x), tells_all(x))
    assert root.handlers  # made by the first of them


class Chatty(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        return False

    def debug(self, msg: object, *args: object, **options: Any) -> None:
        PARENT.error(msg)


CHATTY = Chatty("chatty")


@pytest.mark.filterwarnings("ignore:hostjit")
def test_loggers_of_other_classes_are_asked(compiled: Compiler, said: list[str]) -> None:
    def function(x: Tensor) -> Tensor:
        CHATTY.debug("always")
        return x * 2

    fast = compiled(function)
    for _ in range(3):
        assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))
    assert said == ["always"] * 3


class Once(logging.Logger):
    @functools.lru_cache(None)  # noqa: B019
    def warning_once(self, *args: Any, **options: Any) -> None:
        PARENT.warning(*args, **options)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("is_installed", [True, False])
def test_what_a_package_says_once(
    is_installed: bool, compiled: Compiler, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Once("once")

    def function(x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            once.warning_once(f"long: {x.dtype}")
        return x * 2

    options: dict[str, bool] = {}
    if is_installed:
        here = str(Path(__file__).parent)
        monkeypatch.setattr(kept_results, "_INSTALLED", (*kept_results._INSTALLED, here))
        options = {"fallback": False} if compiled is hostjit.compile else {"fullgraph": True}
    fast = compiled(function, **options)
    x = torch.ones(5)
    for _ in range(3):
        assert_close(fast(x), x * 2)
    assert said == ["long: torch.float32"]
    assert_close(fast(x.double()), x.double() * 2)
    assert said == ["long: torch.float32", "long: torch.float64"]
