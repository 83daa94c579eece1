# SPDX-License-Identifier: Apache-2.0
"""Decisions by open sizes that a program cannot make are refused without a word of PyTorch's."""

from __future__ import annotations

import logging

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hostjit.capturing.dynamic_dims import no_more_guards


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_a_refused_decision_is_not_logged() -> None:
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    size = mode.from_tensor(torch.empty(5, 3), static_shapes=False).shape[0]
    logger, kept = logging.getLogger("torch.fx.experimental.symbolic_shapes"), Kept()
    logger.addHandler(kept)
    try:
        with no_more_guards(environment), pytest.raises(RuntimeError, match="by an open size"):
            bool(size > 7)
        assert kept.messages == []
        with no_more_guards(None):
            assert not size > 7  # a guard
    finally:
        logger.removeHandler(kept)


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
