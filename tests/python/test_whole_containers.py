# SPDX-License-Identifier: Apache-2.0
"""Containers from outside of the arguments that code takes as a whole: none of it is stale."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")


class OwnDict(dict[str, int]):
    pass


class OwnList(list[int]):
    pass


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


DICTS = (*({"a": 1}, {"b": 2, "a": 1}, {}, {"a": 3}, {"a": 1, "b": 2}, {}),)
OF_DICTS: dict[str, Callable[[Any], Any]] = {
    "truth": lambda d: (bool(d), not d, 1 if d else 2, d or 0, d and 1),
    "text": lambda d: (str(d), f"{d}"),
    "repr": lambda d: repr(d),
    "views": lambda d: (str(d.keys()), str(d.values()), str(d.items())),
    "unpacked": lambda d: ([*d], tuple(d), list(d)),
    "merged": lambda d: ({**d, "q": 1}, d | {"q": 1}),
    "largest": lambda d: (max(d, key=d.get, default=None), max(d.values(), default=0)),
    "items": lambda d: (("a", 1) in d.items(), 1 in d.values(), list(d.items())),
    "joined": lambda d: "".join(d),
    "counted": lambda d: dict(collections.Counter(d)),
}
LISTS = ([1, 2], [2, 1], [], [3], [1, 2], [2, 2], [])
OF_LISTS: dict[str, Callable[[Any], Any]] = {
    "truth": lambda v: (bool(v), not v, 1 if v else 2, v and 1),
    "text": lambda v: (str(v), f"{v}"),
    "repr": lambda v: repr(v),
    "unpacked": lambda v: ([*v], tuple(v), list(v), sorted(v)),
    "length": lambda v: (len(v), 1 in v),
}
OF_OTHERS = ("truth", "text", "repr", "unpacked")
CASES = [
    *((kind, name) for kind, of in ((dict, OF_DICTS), (list, OF_LISTS)) for name in of),
    *((kind, name) for kind in (OwnDict, OwnList, collections.OrderedDict) for name in OF_OTHERS),
    *((kind, "text") for kind in (tuple, set, collections.deque)),
]
WAYS = {
    "attribute": hostjit.compile,
    "closure": hostjit.compile,
    "recorded": hostjit.capture,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def test_containers(case: tuple[Any, str], way: str) -> None:
    kind, name = case
    of_dicts = issubclass(kind, dict)
    tell = OF_DICTS[name] if of_dicts else OF_LISTS[name]
    holder = Holder(None)

    def of_attribute(x: Tensor, of: Holder) -> Any:
        return x * 2, tell(of.held)

    def of_closure(x: Tensor, _: Holder) -> Any:
        return x * 2, tell(holder.held)

    fast: Callable[..., Any] = WAYS[way](of_closure if way == "closure" else of_attribute)
    for value in DICTS if of_dicts else LISTS:
        holder.held = kind(value)
        found, expected = fast(torch.ones(2), holder)[1], tell(kind(value))
        assert repr(found) == repr(expected), value


@pytest.mark.parametrize("name", OF_DICTS)
def test_a_dict_that_changes(name: str) -> None:
    tell, held = OF_DICTS[name], {"a": 1}
    fast = hostjit.compile(lambda x: (x * 2, tell(held)))
    for value in DICTS:
        held.clear()
        held.update(value)
        assert repr(fast(torch.ones(2))[1]) == repr(tell(dict(value))), value


def test_look_ups_need_no_other_program() -> None:
    held = {"a": torch.ones(2)}
    fast = hostjit.compile(lambda x: x * held["a"] if "b" not in held else x)
    for name in ("c", "d", "e"):
        assert torch.equal(fast(torch.ones(2)), torch.ones(2))
        held[name] = torch.zeros(2)
    assert len(fast.specializations) == 1
