# SPDX-License-Identifier: Apache-2.0
"""What cannot be captured whole: the parts around the breaks are compiled, the whole is eager's."""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from in_parts import check
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit

pytestmark = pytest.mark.filterwarnings("ignore:hostjit")

NOWHERE = io.StringIO()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def scale(x: Tensor) -> Tensor:
    x = x * 2
    print("scale", file=NOWHERE)
    return x + 1


def printing(x: Tensor) -> Tensor:
    y = (x + 1).relu()
    print("printing", file=NOWHERE)
    return y * 3 - x


def twice(x: Tensor) -> Tensor:
    return scale(scale(x)).tanh()


def in_a_loop(x: Tensor) -> Tensor:
    for i in range(3):
        x = scale(x) - i
    return x


def in_a_context(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x.exp()
        print("context", file=NOWHERE)
        y = y + x
    return y * x


def in_a_try(x: Tensor) -> Tensor:
    try:
        y = x * 2
        print("try", file=NOWHERE)
        raise ValueError
    except ValueError:
        y = x * 3
    finally:
        x = x + 1
    return x + y


def branching(x: Tensor) -> Tensor:
    y = x * 2 + 1
    return y.relu() if x.sum() > 0 else y.sigmoid()


def ending(x: Tensor) -> tuple[Tensor, float]:
    y = x.cos() + 1
    return y, y.sum().item()


def with_a_number(x: Tensor) -> Tensor:
    largest = x.abs().max().item()
    return (x + 1) / largest + x


def with_a_count(x: Tensor) -> Tensor:
    count = int((x > 0).sum())
    return x[0] * count + torch.ones(count + 1).sum()


def with_a_list(x: Tensor) -> Tensor:
    weights = (x * 2).sum(1).tolist()
    return torch.stack([x[i] * w for i, w in enumerate(weights)])


def with_a_closure(x: Tensor) -> Tensor:
    offset = x + 1

    def shift(value: Tensor) -> Tensor:
        return value * offset

    y = shift(x)
    print("closure", file=NOWHERE)
    return shift(y)


def with_a_comprehension(x: Tensor) -> Tensor:
    y = x * 2
    print("comprehension", file=NOWHERE)
    return torch.stack([y + i for i in range(3)])


def with_keywords(x: Tensor, *, scale: float = 2.0, **rest: Any) -> Any:
    y = x * scale
    print("keywords", file=NOWHERE)
    return {"y": y, "rest": [y + 1, rest]}


def writing(x: Tensor) -> Tensor:
    x.mul_(2)
    print("writing", file=NOWHERE)
    x[0] = 1
    return x + 1


def drawing(x: Tensor) -> Tensor:
    y = x + torch.rand_like(x)
    print("drawing", file=NOWHERE)
    return nn.functional.dropout(y, 0.5)


def generating(x: Tensor) -> Iterator[Tensor]:
    yield x * 2
    print("generating", file=NOWHERE)
    yield x + 1


def with_a_generator(x: Tensor) -> Tensor:
    return torch.stack(list(generating(x))).sum(0)


def deleting(x: Tensor) -> Tensor:
    y = x * 2
    z = x + 1
    print("deleting", file=NOWHERE)
    w = y + z
    del y, z
    print("more", file=NOWHERE)
    return w * 2


def with_views(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    z = y.view(-1)
    print("views", file=NOWHERE)
    z[0] = 5
    return y + 1, z


def choosing_by_nodes(x: Tensor) -> Tensor:
    results = [x + 1, x * 2]
    found = [y for y in results if y.grad_fn is not None and y.grad_fn.name()]
    return results[0] * len(found) + results[1]


def with_numpy(x: Tensor) -> Tensor:
    y = x * 2
    import numpy as np

    np.random.seed(0)
    return y + float(np.random.rand())


FUNCTIONS = [
    *(printing, twice, in_a_loop, in_a_context, in_a_try, branching, ending, with_a_number),
    *(with_a_count, with_a_list, with_a_closure, with_a_comprehension, with_keywords, writing),
    *(drawing, with_a_generator, with_numpy, deleting, with_views, choosing_by_nodes),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_parts_answer_as_eager_does(function: Callable[..., Any]) -> None:
    x = torch.randn(4, 3)
    with torch.no_grad():
        check(function, (x,), (-x,))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_flow_through_parts(function: Callable[..., Any]) -> None:
    def summed(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.clone().requires_grad_()
        result = run(leaf * 1)
        while not isinstance(result, Tensor):
            result = result["y"] if isinstance(result, dict) else result[0]
        result.sum().backward()
        assert leaf.grad is not None
        return result.detach(), leaf.grad

    x = torch.randn(4, 3)
    expected, run = [], function
    for round_number in range(3):
        torch.manual_seed(round_number)
        expected.append(summed(x))
    run = hostjit.compile(function)
    for round_number in range(3):
        torch.manual_seed(round_number)
        assert_close(summed(x), expected[round_number])


def test_runs_what_the_user_wrote_in_order() -> None:
    log: list[str] = []

    def function(x: Tensor) -> Tensor:
        log.append("first")
        y = x + 1
        print("a", file=NOWHERE)
        log.append("second")
        for name in ("third", "fourth"):
            log.append(name)
        print("b", file=NOWHERE)
        return y * len(log)

    fast = hostjit.compile(function)
    for _ in range(3):
        log.clear()
        expected = function(torch.ones(3))
        order = list(log)
        log.clear()
        assert_close(fast(torch.ones(3)), expected)
        assert log == order


def test_state_is_followed() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.total += x.sum(0)
            print(self.calls, file=NOWHERE)
            self.calls += 1
            return x * self.total if self.training else x

    model, eager = Counting(), Counting()
    fast = hostjit.compile(model)
    for training in (True, True, False, True):
        model.train(training)
        eager.train(training)
        x = torch.randn(4, 3)
        assert_close(fast(x), eager(x))
        assert model.calls == eager.calls
        assert_close(model.total, eager.total)


def test_errors_are_those_of_eager() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x = x + 1
        print("before", file=NOWHERE)
        return x @ y

    fast = hostjit.compile(function)
    good = torch.randn(2, 3), torch.randn(3, 2)
    bad = torch.randn(2, 3), torch.randn(2, 3)
    for args in (good, bad, good, bad):
        try:
            expected = function(*args)
        except RuntimeError as error:
            with pytest.raises(type(error), match="cannot be multiplied"):
                fast(*args)
        else:
            assert_close(fast(*args), expected)


def test_an_error_at_the_break_leaves_what_came_before() -> None:
    def function(x: Tensor, items: list[int]) -> Tensor:
        x.add_(1)
        items.index(5)
        return x * 2

    fast = hostjit.compile(lambda x, items: function(x, items))
    for items in ([5], [4], [5]):
        x = torch.zeros(3)
        with contextlib.suppress(ValueError):
            fast(x, items)
        assert_close(x, torch.ones(3))


def test_one_warning_names_the_line() -> None:
    fast = hostjit.compile(twice)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in (2, 3):
            fast(torch.randn(size))
    said = [warning for warning in caught if "hostjit" in str(warning.message)]
    assert len(said) == 1
    assert said[0].filename == __file__
    line = scale.__code__.co_firstlineno + 2
    assert f"at {__file__}:{line}" in str(said[0].message)
    assert "'twice' runs in parts" in str(said[0].message)


@pytest.mark.parametrize("function", [printing, branching, with_a_list, in_a_loop])
def test_refused_where_that_was_asked_for(function: Callable[..., Any]) -> None:
    x = torch.randn(3, 3)
    before = x.clone()
    with pytest.raises(hostjit.CaptureError):
        hostjit.compile(function, fallback=False)(x)
    assert_close(x, before)


def test_methods_and_modules_called_in_a_loop_are_compiled() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x).tanh() + x

    blocks = nn.ModuleList(Block() for _ in range(3))

    def function(x: Tensor) -> Tensor:
        for block in blocks:
            y = block(x)
            print("block", file=NOWHERE)
            x = y
            del y  # what a pass does is no function
        return x

    fast = hostjit.compile(function)
    x = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(x), function(x))
        forward = Block.forward.__code__
        entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(forward)
        assert entries
        assert_close(fast(x), function(x))


def test_threads() -> None:
    fast = hostjit.compile(twice)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            with torch.no_grad():
                for _ in range(20):
                    x = torch.randn(2 + seed % 2, 3, generator=generator)
                    assert_close(fast(x), twice(x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_transforms_and_modes_around_parts() -> None:
    fast = hostjit.compile(printing)
    x, t = torch.randn(3), torch.randn(3)
    fast(x)
    assert_close(torch.func.jvp(fast, (x,), (t,)), torch.func.jvp(printing, (x,), (t,)))
    assert_close(torch.func.vmap(fast)(x), torch.func.vmap(printing)(x))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, t)
        found = torch.autograd.forward_ad.unpack_dual(fast(dual)).tangent
        expected = torch.autograd.forward_ad.unpack_dual(printing(dual)).tangent
    assert_close(found, expected)
    with torch.autocast("cpu", torch.bfloat16):
        y = torch.randn(3, 3)
        function = hostjit.compile(lambda y: scale(y @ y) @ y)
        assert_close(function(y), scale(y @ y) @ y)
    with torch.inference_mode():
        assert_close(fast(x), printing(x))


def test_compiled_functions_in_parts() -> None:
    inner = hostjit.compile(printing)

    def outer(x: Tensor) -> Tensor:
        y = inner(x * 2)
        print("outer", file=NOWHERE)
        return inner(y)

    check(outer, (torch.randn(3),))


def test_a_reset_of_dynamo() -> None:
    fast, looping = hostjit.compile(twice), hostjit.compile(in_a_loop)
    for _ in range(2):
        x = torch.randn(3)
        assert_close(fast(x), twice(x))
        assert_close(looping(x), in_a_loop(x))
        torch._dynamo.reset()


def test_recursion() -> None:
    def countdown(x: Tensor, depth: int) -> Tensor:
        print(depth, file=NOWHERE)
        return x + 1 if depth == 0 else fast(x * 2, depth - 1)

    fast = hostjit.compile(countdown)
    for _ in range(2):
        assert_close(fast(torch.ones(2), 4), torch.full((2,), 17.0))


def test_a_hook_that_a_module_is_given_later_in_a_frame_below() -> None:
    def layer(model: nn.Module, x: Tensor) -> Tensor:
        return model(x) * 2

    def function(model: nn.Module, x: Tensor) -> Tensor:
        # Dynamo follows no `eval`, but compiles the frame that it begins.
        y: Tensor = eval("layer(model, x)", {"layer": layer, "model": model, "x": x})
        return y + 1

    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    fast = hostjit.compile(function)
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(model, x), function(model, x))
        model.register_forward_hook(lambda module, args, result: result + 1)
        assert_close(fast(model, x), function(model, x))
