# SPDX-License-Identifier: Apache-2.0
"""What `torch.compiler` offers to control compilation, with the backend and with hostjit itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

Make = Callable[..., Any]


def by_backend(function: Any) -> Any:
    return torch.compile(function, backend="hostjit", dynamic=False)


def by_hostjit(function: Any) -> Any:
    return hostjit.compile(function, dynamic=False)


MAKERS = [by_backend, by_hostjit]
everywhere = pytest.mark.parametrize("make", MAKERS)


class Counted:
    """A function that counts how often its Python code runs uncompiled."""

    def __init__(self) -> None:
        self.uncompiled = 0

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self.note()
        return x.sin() * 2 + x.shape[0]

    @torch.compiler.disable
    def note(self) -> None:
        self.uncompiled += 1


def call(fast: Any, counted: Counted, length: int) -> bool:
    """Compare a call with what is expected; return whether it ran uncompiled."""
    before = counted.uncompiled
    x = torch.randn(length)
    assert_close(fast(x), x.sin() * 2 + length)
    return counted.uncompiled > before


def test_uncompiled_by_stance() -> None:
    counted = Counted()
    fast = by_backend(counted)
    with torch.compiler.set_stance("force_eager"):
        assert call(fast, counted, 4)
    assert not call(fast, counted, 4)
    with torch.compiler.set_stance("force_eager"):
        assert call(fast, counted, 4)
    assert not call(fast, counted, 4)


def test_nothing_is_compiled_again_by_stance() -> None:
    counted = Counted()
    fast = by_backend(counted)
    assert not call(fast, counted, 4)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert not call(fast, counted, 4)
        assert call(fast, counted, 5)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert not call(fast, counted, 4)
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            fast(torch.randn(5))
    assert not call(fast, counted, 5)


def test_another_backend_by_stance() -> None:
    fast = by_backend(torch.sin)
    x = torch.randn(4)
    with torch.compiler.set_stance("default", force_backend="eager"):
        assert_close(fast(x), x.sin())
    with torch.compiler.set_stance("default"):
        assert_close(fast(x), x.sin())


def test_uncompiled_at_first_by_stance() -> None:
    counted = Counted()
    with torch.compiler.set_stance("eager_then_compile"):
        fast = torch.compile(counted, backend="hostjit")
        assert call(fast, counted, 4)
        assert not call(fast, counted, 5)
        assert not call(fast, counted, 6)


def printing(x: Tensor) -> Tensor:
    y = x.sin()
    print(end="")
    return y * 2


def selected(x: Tensor) -> Tensor:
    return x[x > 0] * 2


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "stance", ["force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile"]
)
@pytest.mark.parametrize("function", [torch.sin, printing, selected])
@pytest.mark.parametrize("make", [hostjit.compile, hostjit.capture])
def test_stances_are_not_about_functions_of_hostjit(
    make: Make, function: Callable[[Tensor], Tensor], stance: Any
) -> None:
    fast = make(function)
    with torch.compiler.set_stance(stance):
        for length in (4, 4, 4, 5, 5):
            x = torch.randn(length)
            assert_close(fast(x), function(x))
    for length in (4, 5, 6):
        x = torch.randn(length)
        assert_close(fast(x), function(x))


def test_a_stance_is_not_about_a_compiled_function_of_hostjit() -> None:
    counted = Counted()
    fast = by_hostjit(counted)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert not call(fast, counted, 4)
        assert not call(fast, counted, 5)


@pytest.mark.filterwarnings("ignore:hostjit")
@everywhere
@pytest.mark.parametrize("disable", [torch.compiler.disable, torch._dynamo.disable])
def test_disabled_functions_run_uncompiled(disable: Any, make: Make) -> None:
    seen: list[bool] = []

    @disable
    def inner(x: Tensor) -> Tensor:
        seen.append(torch.compiler.is_compiling())
        return x * len(seen)

    fast = make(lambda x: inner(x.sin()).cos())
    x = torch.randn(4)
    for count in (1, 2, 3):
        assert_close(fast(x), (x.sin() * count).cos())
    assert seen == [False] * 3


@pytest.mark.filterwarnings("ignore:hostjit")
@everywhere
def test_a_disabled_method_and_a_function_disabled_by_itself(make: Make) -> None:
    class Logged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.calls = 0

        @torch.compiler.disable
        def log(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x + self.calls

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.log(x))

    model = Logged()
    fast = make(model)
    for count in (1, 2, 3):
        x = torch.randn(4)
        assert_close(fast(x), model.layer(x + count))

    def inner(x: Tensor) -> Tensor:
        return x.exp()

    @torch._dynamo.disable(recursive=False)
    def outer(x: Tensor) -> Tensor:
        return inner(x) * 2

    fast = make(lambda x: outer(x.sin()).cos())
    for _ in range(3):
        x = torch.randn(4)
        assert_close(fast(x), (x.sin().exp() * 2).cos())


@everywhere
def test_code_asks_whether_it_is_compiled(make: Make) -> None:
    def asking(x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and torch.compiler.is_dynamo_compiling():
            return x + 1
        return x - 1

    fast = make(asking)
    x = torch.randn(4)
    for _ in range(3):
        assert_close(fast(x), x + 1)
    assert_close(asking(x), x - 1)


@everywhere
def test_reset_between_calls(make: Make) -> None:
    fast = make(torch.sin)
    for length in (4, 4, 5):
        x = torch.randn(length)
        assert_close(fast(x), x.sin())
        torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:hostjit")
@everywhere
def test_steps_of_cuda_graphs_are_marked(make: Make) -> None:
    def marking(x: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return x.sin()

    for function in (marking, torch.sin):
        fast = make(function)
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(4)
            assert_close(fast(x), x.sin())


@everywhere
def test_results_that_are_taken_to_be_constant(make: Make) -> None:
    found: list[int] = []

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def counted() -> int:
        found.append(len(found))
        return 3 + found[-1]

    fast = make(lambda x: x * counted())
    results = []
    for _ in range(4):
        x = torch.randn(4)
        results.append(fast(x) / x)
    assert_close(results, [torch.full((4,), 3.0)] * 4)


@everywhere
def test_functions_that_are_allowed_in_a_graph(make: Make) -> None:
    @torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
    def inner(x: Tensor) -> Tensor:
        return x.sin() + 1

    fast = make(lambda x: inner(x) * 2)
    for _ in range(3):
        x = torch.randn(4, requires_grad=True)
        found = fast(x)
        assert_close(found, x.sin() * 2 + 2)
        found.sum().backward()
        assert_close(x.grad, 2 * x.detach().cos())


@everywhere
def test_regions_that_are_compiled_once(make: Make) -> None:
    @torch.compiler.nested_compile_region
    def inner(x: Tensor) -> Tensor:
        return x.sin() + 1

    fast = make(lambda x: inner(inner(x)))
    for length in (4, 4, 5):
        x = torch.randn(length)
        assert_close(fast(x), (x.sin() + 1).sin() + 1)


def test_graph_breaks_that_are_errors() -> None:
    def breaking(x: Tensor) -> Tensor:
        with torch._dynamo.error_on_graph_break(True):
            y = x.sin()
            torch._dynamo.graph_break()
        return y

    with pytest.raises(torch._dynamo.exc.Unsupported):
        by_backend(breaking)(torch.randn(4))

    @torch._dynamo.error_on_graph_break(False)
    def inner(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1

    @torch._dynamo.error_on_graph_break(True)
    def outer(x: Tensor) -> Tensor:
        return inner(x.sin())

    x = torch.randn(4)
    assert_close(by_backend(outer)(x), x.sin() + 1)


def test_artifacts_of_caches() -> None:
    fast = by_backend(torch.sin)
    x = torch.randn(4)
    assert_close(fast(x), x.sin())
    saved = torch.compiler.save_cache_artifacts()
    if saved is not None:
        torch.compiler.load_cache_artifacts(saved[0])
    assert_close(fast(x), x.sin())


@everywhere
def test_without_dynamo(make: Make) -> None:
    fast = make(torch.sin)
    x = torch.randn(4)
    with torch._dynamo.config.patch(disable=True):
        assert_close(fast(x), x.sin())
    assert_close(fast(x), x.sin())


@everywhere
def test_breaks_are_errors_on_demand(make: Make) -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y * 2

    fast = make(function)
    with torch._dynamo.error_on_graph_break(True), pytest.raises(Exception, match=r"[Gg]raph"):
        fast(torch.ones(3))
    if make is by_hostjit:
        with pytest.warns(UserWarning, match="runs in parts"):
            assert_close(fast(torch.ones(3)), function(torch.ones(3)))
