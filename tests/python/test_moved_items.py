# SPDX-License-Identifier: Apache-2.0
"""Items of an OrderedDict outside of the arguments that move: no other change tells of it."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*runs eagerly")

Items = OrderedDict[Any, Any]
Function = Callable[[Tensor], Any]

ordered: Items = OrderedDict()


class Settings(OrderedDict[Any, Any]):
    pass


def folded(items: Items, x: Tensor) -> Tensor:
    for value in items.values():
        x = x * 2 + value
    return x


def functions_of(items: Items) -> dict[str, Function]:
    held = types.SimpleNamespace(items=items)
    return {
        "closure": lambda x: folded(items, x),
        "attribute": lambda x: folded(held.items, x),
        "global": lambda x: folded(ordered, x),
        "first": lambda x: x * items[next(iter(items))],
        "last": lambda x: x * items[next(reversed(items))],
        "list": lambda x: x * next(iter(items.items()))[1],
        "equality": lambda x: x + (items == OrderedDict(a=2.0, b=3.0, c=5.0)),
        "keywords": lambda x: x * [*dict(**items)].index("a"),
    }


def changes_of(items: Items) -> Iterator[Any]:
    yield
    yield items.move_to_end("a")
    yield items.move_to_end("c", last=False)
    yield items.move_to_end("a", last=False)
    yield items.update(a=7.0)
    yield items.move_to_end("b")
    yield items.popitem(last=False)


@pytest.mark.parametrize("compile", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("kind", [OrderedDict, Settings])
@pytest.mark.parametrize("name", functions_of(OrderedDict()))
def test_items_move(
    name: str, kind: Any, compile: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = kind(a=2.0, b=3.0, c=5.0)
    monkeypatch.setitem(globals(), "ordered", items)
    function = functions_of(items)[name]
    fast = compile(function)
    for _ in changes_of(items):
        for _ in range(2):
            try:
                expected = function(torch.ones(2))
            except (KeyError, ValueError) as error:
                with pytest.raises(type(error)):
                    fast(torch.ones(2))
            else:
                assert torch.equal(fast(torch.ones(2)), expected)


@pytest.mark.parametrize("kind", [OrderedDict, Settings])
def test_each_order_is_compiled_once(kind: Any) -> None:
    items = kind({torch.sin: 2.0, torch.cos: 3.0})

    def function(x: Tensor) -> Tensor:
        for call, gain in items.items():
            x = call(x) * gain
        return x

    fast = hostjit.compile(function, fallback=False)
    for key in (torch.sin, torch.cos, torch.cos, torch.sin, torch.cos):
        items.move_to_end(key)
        for _ in range(2):
            torch.testing.assert_close(fast(torch.ones(2)), function(torch.ones(2)))
    assert len(fast.specializations) == 2


def test_items_that_move_and_return_change_nothing() -> None:
    items = OrderedDict(a=2.0, b=3.0, c=5.0)
    fast = hostjit.compile(lambda x: folded(items, x), fallback=False)
    first = fast(torch.ones(2))
    for key in ("a", "b", "c"):
        items.move_to_end(key)
    assert torch.equal(fast(torch.ones(2)), first)
    assert len(fast.specializations) == 1


def test_items_of_a_module_s_hooks_move() -> None:
    found = torch.nn.Identity()
    first = found.register_forward_hook(lambda module, args, result: result + 1)
    found.register_forward_hook(lambda module, args, result: result * 3)
    fast = hostjit.compile(found)
    assert fast(torch.ones(1)).item() == 6
    found._forward_hooks.move_to_end(first.id)  # type: ignore[attr-defined]
    assert fast(torch.ones(1)).item() == found(torch.ones(1)).item() == 4
