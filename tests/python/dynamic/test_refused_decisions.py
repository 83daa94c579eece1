# SPDX-License-Identifier: Apache-2.0
"""Decisions by open sizes that a program cannot make are refused without a word of PyTorch's."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hostjit.capturing.dynamic_dims import no_more_guards, symbols_kept


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextlib.contextmanager
def logged(name: str) -> Iterator[list[str]]:
    logger, kept = logging.getLogger(name), Kept()
    logger.addHandler(kept)
    try:
        yield kept.messages
    finally:
        logger.removeHandler(kept)


def test_a_refused_decision_is_not_logged() -> None:
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    size = mode.from_tensor(torch.empty(5, 3), static_shapes=False).shape[0]
    with logged("torch.fx.experimental.symbolic_shapes") as messages:
        with no_more_guards(environment), pytest.raises(RuntimeError, match="by an open size"):
            bool(size > 7)
        assert messages == []
        with no_more_guards(None):
            assert not size > 7  # a guard


def test_sizes_that_have_to_be_known_are_not_logged() -> None:
    environment = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=environment)
    x = mode.from_tensor(torch.empty(2, 4, 5), static_shapes=False)
    y = mode.from_tensor(torch.empty(2, 5, 3), static_shapes=True)
    with logged("torch._subclasses.fake_tensor") as messages:
        with symbols_kept(environment), pytest.raises(RuntimeError, match="by an open size"):
            torch.bmm(x, y)
        assert messages == []


def test_what_leaves_no_guard_is_no_decision() -> None:
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    size = mode.from_tensor(torch.empty(5, 3), static_shapes=False).shape[0]
    with no_more_guards(environment):
        with environment.suppress_guards():
            assert not size > 7
        with pytest.raises(RuntimeError, match="by an open size"):
            bool(size > 8)
    assert not environment.guards


def test_sizes_that_have_to_be_one_stay_two_symbols_with_a_guard() -> None:
    environment = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=environment)
    scores = mode.from_tensor(torch.empty(3, 5), static_shapes=False)
    mask = mode.from_tensor(torch.empty(2, 5), static_shapes=False)
    with symbols_kept(environment):
        torch._check(scores.shape[1] == mask.shape[1])
        assert scores.shape[1] == mask.shape[1]
        with pytest.raises(RuntimeError, match="a decision by an open size"):
            assert scores.shape[0] == 3
    assert str(scores.shape[1]) != str(mask.shape[1])
    assert environment.guards
