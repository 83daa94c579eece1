# SPDX-License-Identifier: Apache-2.0
"""What a capture keeps Dynamo from doing for nobody."""

from __future__ import annotations

import logging

import pytest
import torch
from torch._dynamo import funcname_cache, output_graph

import hostjit


def test_no_file_is_read_to_name_functions_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def add_file(name: str) -> None:
        read.append(name)
        funcname_cache.cache[name] = {}

    monkeypatch.setattr(funcname_cache, "cache", {})
    monkeypatch.setattr(funcname_cache, "_add_file", add_file)
    x = torch.ones(3)
    assert torch.equal(hostjit.compile(lambda x: x * 2 + 1, fallback=False)(x), x * 2 + 1)
    assert not read
    log = output_graph.trace_call_log
    monkeypatch.setattr(log, "debug", lambda *_: None)
    monkeypatch.setattr(log, "isEnabledFor", lambda level: level == logging.DEBUG)
    assert torch.equal(hostjit.compile(lambda x: x * 3 + 1, fallback=False)(x), x * 3 + 1)
    assert __file__ in read
