# SPDX-License-Identifier: Apache-2.0
"""Code of Dynamo's that calls a compiled graph itself, and asks little at a call."""

from __future__ import annotations

import functools
import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._C._dynamo.eval_frame import get_eval_frame_callback
from torch.autograd.graph import saved_tensors_hooks
from torch.testing import assert_close

import hostjit

callbacks: list[Any] = []


@torch.library.custom_op("hostjit_tests::looked_at", mutates_args=())
def looked_at(x: Tensor) -> Tensor:
    """Note what Dynamo does with frames that begin in an operator written in Python."""
    callbacks.append(get_eval_frame_callback())
    return x * 2


@looked_at.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def frames_of(call: Callable[[], Any]) -> list[str]:
    """Return the names of the Python functions that run in a call."""
    names: list[str] = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name))
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


def test_no_frame_stands_between() -> None:
    fast = torch.compile(lambda x: x.sin() + 1, backend="hostjit")
    x = torch.randn(5)
    with torch.no_grad():
        fast(x)
        names = frames_of(lambda: assert_close(fast(x), x.sin() + 1))
    assert "_fn" not in names
    assert "top_saved_tensors_hooks" not in names
    assert "<lambda>" in names


def test_operators_in_python_are_not_looked_at() -> None:
    fast = torch.compile(lambda x: looked_at(x.sin()) + 1, backend="hostjit")
    for _ in range(3):
        x = torch.randn(5)
        callbacks.clear()
        assert_close(fast(x), x.sin() * 2 + 1)
        assert callbacks[-1] is None


def test_what_comes_behind_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y.cos() * 2

    fast = torch.compile(function, backend="hostjit")
    torch._dynamo.utils.counters.clear()
    for _ in range(3):
        x = torch.randn(5)
        assert_close(fast(x), (x.sin() + 1).cos() * 2)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2
    assert get_eval_frame_callback() is None


def test_a_call_that_raises() -> None:
    def function(x: Tensor, places: Tensor) -> Tensor:
        try:
            return pick(x, places)
        except IndexError:
            return after(x)

    def pick(x: Tensor, places: Tensor) -> Tensor:
        return (x + 1)[places]

    def after(x: Tensor) -> Tensor:
        return x.cos() * 2

    fast = torch.compile(function, backend="hostjit")
    x = torch.randn(5)
    for _ in range(3):
        assert_close(fast(x, torch.tensor([1, 2])), (x + 1)[1:3])
        assert_close(fast(x, torch.tensor([1, 7])), x.cos() * 2)
    with pytest.raises(IndexError):
        torch.compile(pick, backend="hostjit")(x, torch.tensor([9]))
    assert get_eval_frame_callback() is None


def test_hooks_of_saved_tensors() -> None:
    packed = []

    def pack(saved: Tensor) -> Tensor:
        packed.append(saved)
        return saved * 2

    def function(x: Tensor) -> Tensor:
        return x.sin().exp()

    fast = torch.compile(function, backend="hostjit")
    x = torch.randn(5, requires_grad=True)
    plain, halves = (lambda saved: saved), (lambda saved: saved / 2)
    for pairs in ((pack, halves), (plain, plain), (pack, halves)):
        (expected,) = torch.autograd.grad(function(x).sum(), x)
        assert_close(torch.autograd.grad(fast(x).sum(), x), (expected,))
        with saved_tensors_hooks(*pairs):
            found = fast(x)
        assert_close(torch.autograd.grad(found.sum(), x), (expected,))
    assert packed


def test_hooks_that_are_graphs() -> None:
    """Dynamo takes them into the graph; without them it has another."""

    def function(x: Tensor) -> Tensor:
        return x.sin().exp()

    fast = torch.compile(function, backend="hostjit")
    x = torch.randn(5, requires_grad=True)
    doubled = fx.symbolic_trace(lambda saved: saved * 2)
    halved = fx.symbolic_trace(lambda saved: saved / 2)
    (expected,) = torch.autograd.grad(function(x).sum(), x)
    torch._dynamo.utils.counters.clear()
    for _ in range(3):
        assert_close(torch.autograd.grad(fast(x).sum(), x), (expected,))
        with saved_tensors_hooks(doubled, halved):
            assert_close(torch.autograd.grad(fast(x).sum(), x), (expected,))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_sizes_are_read_in_c() -> None:
    fast = torch.compile(lambda x, y: x.sin() * y.shape[0] + y.stride(0), backend="hostjit")
    for rows in (3, 4, 5, 6):
        x, y = torch.randn(rows), torch.randn(7, rows)
        expected = x.sin() * 7 + rows
        assert_close(fast(x, y), expected)
    names = frames_of(lambda: assert_close(fast(x, y), expected))
    assert "call_size" not in names


def test_no_frame_stands_before_graphs_of_any_size() -> None:
    fast = torch.compile(lambda x, n: x.sin() * 2 + n, backend="hostjit")
    with torch.no_grad():
        for rows in (3, 4, 5, 6):
            x = torch.randn(rows)
            assert_close(fast(x, rows + 2), x.sin() * 2 + rows + 2)
        names = frames_of(lambda: fast(x, 9))
    assert not {"call_size", "_fn", "__call__"} & set(names)


def test_sizes_of_parts_are_read_in_c() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y.cos() * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast = hostjit.compile(function)
        for rows in (3, 4, 5, 6):
            x = torch.randn(rows)
            assert_close(fast(x), function(x))
    names = frames_of(functools.partial(fast, x))
    assert not {"call_size", "_fn", "<lambda>"} & set(names)


def test_sizes_of_subclasses() -> None:
    """They are what the class says."""
    counted = []

    class Counting(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            counted.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.randn(3, 4).as_subclass(Counting)
    assert hostjit._C.call_size(x, 1) == 4
    assert hostjit._C.call_stride(x, 0) == 4
    assert hostjit._C.call_storage_offset(x) == 0
    assert len(counted) == 3


def test_sizes_of_wrong_dims_raise_as_in_pytorch() -> None:
    x = torch.randn(3, 4)[1:]
    assert hostjit._C.call_size(x, -1) == 4
    assert hostjit._C.call_storage_offset(x) == 4
    for call in (hostjit._C.call_size, hostjit._C.call_stride):
        with pytest.raises(IndexError, match="Dimension out of range"):
            call(x, 2)
        with pytest.raises(TypeError):
            call(x)
        with pytest.raises(TypeError):
            call(x, "a")


def test_a_selection() -> None:
    known = torch.ones(2)
    chosen = hostjit._C.Selection(lambda *given: given, [(2, None), (None, known), (0, None)])
    assert chosen(1, 2, 3) == (3, known, 1)
    assert chosen(1, 2, 3, 4) == (3, known, 1)
    with pytest.raises(TypeError, match="selection of 3"):
        chosen(1, 2)
    with pytest.raises(TypeError, match="selection of 3"):
        chosen(1, 2, 3, a=4)
    with pytest.raises(AttributeError):
        _ = chosen.nothing
    assert chosen.__name__ == "<lambda>"
    with pytest.raises(ValueError, match="negative"):
        hostjit._C.Selection(len, [(-1, None)])
    with pytest.raises(TypeError):
        hostjit._C.Selection(len, [3])


def test_a_selection_of_a_boxed_call() -> None:
    class Boxed:
        def call_boxed(self, given: list[Any]) -> list[Any]:
            return given

    chosen = hostjit._C.Selection(Boxed(), [(1, None), (None, "known")])
    given = [1, 2, 3]
    assert chosen.call_boxed(given) == [2, "known"]
    assert not given
    with pytest.raises(TypeError, match="takes a list"):
        chosen.call_boxed((1, 2))
    with pytest.raises(TypeError, match="selection of 2"):
        chosen.call_boxed([1])


def test_a_selection_in_a_cycle_is_collected() -> None:
    class Holder:
        def __call__(self, *given: Any) -> Any:
            return given

    holder = Holder()
    holder.selection = hostjit._C.Selection(holder, [(None, holder)])  # type: ignore[attr-defined]
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None
