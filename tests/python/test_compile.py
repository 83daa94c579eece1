# SPDX-License-Identifier: Apache-2.0
"""hostjit.compile: the result, the specializations, and what happens at a miss."""

from __future__ import annotations

import gc
import threading
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.compiling.compilation import Compilation


@pytest.fixture(autouse=True)
def _seed() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Compile, call by both runtimes twice, compare with eager; returns the compiled function."""
    fast = hostjit.compile(function)
    expected = function(*args, **kwargs)
    for runtime in ("jit", "evaluator"):
        with hostjit.runtime(runtime):
            for _ in range(2):
                assert_close(fast(*args, **kwargs), expected)
    return fast


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale * self.down(torch.tanh(self.up(x)))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


def test_module() -> None:
    fast = check(MLP(), torch.randn(3, 16))
    assert len(fast.specializations) == 1
    assert "linear" in fast.host_ir()
    assert "define" in fast.llvm_ir()
    assert "arena" in fast.memory_plan()


def test_pointwise_broadcast_and_promotion() -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.relu(a + b) * c - a.sqrt()

    check(f, torch.rand(4, 1, 8), torch.randint(0, 5, (6, 1)), torch.rand(8, dtype=torch.float64))


def test_containers_in_and_out() -> None:
    def f(pair: Pair, *, options: dict[str, Any]) -> dict[str, Any]:
        scaled = pair.first * options["scale"]
        return {"sum": scaled + pair.second, "pair": Pair(scaled, pair.first), "none": None}

    pair = Pair(torch.randn(4), torch.randn(4))
    fast = check(f, pair, options={"scale": 2.0})
    found = fast(pair, options={"scale": 2.0})
    assert found["none"] is None
    assert isinstance(found["pair"], Pair)
    assert found["pair"].second is pair.first
    assert_close(fast(pair, options={"scale": 3.0})["sum"], 3 * pair.first + pair.second)


def test_constants_are_part_of_the_signature() -> None:
    def f(x: torch.Tensor, power: float, flag: bool) -> torch.Tensor:
        return x * power if flag else x + power

    fast = hostjit.compile(f)
    x = torch.randn(5)
    for power in (0.0, -0.0, 2.0, float("inf")):
        for flag in (True, False):
            assert_close(fast(x, power, flag), f(x, power, flag))
    assert torch.signbit(fast(torch.ones(1), -0.0, True)).all()


def test_a_new_shape_specializes() -> None:
    fast = hostjit.compile(lambda x: (x * 2).sum(), dynamic=False)
    for size in (4, 8, 4, 2):
        assert_close(fast(torch.ones(size)), torch.tensor(2.0 * size))
    assert len(fast.specializations) == 3


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x[::2],
        lambda x: x.t(),
        lambda x: x[:, :1].expand(6, 6),
        lambda x: x.flip(0),
        lambda x: x[1:, 1:],
        lambda x: x.unsqueeze(0),
        lambda x: x[:0],
        lambda x: x.sum(),
    ],
)
def test_layouts_of_inputs(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(lambda x: torch.tanh(x) * 2 + x, make(torch.randn(6, 6)))


def test_output_strides_are_those_of_eager() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.t() * 2, (x + 1).t()

    x = torch.randn(3, 5)
    for found, expected in zip(hostjit.compile(f)(x), f(x), strict=True):
        assert found.stride() == expected.stride()
        assert_close(found, expected)


def test_outputs_alias_as_in_eager() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x, x.view(-1), y, y[0]

    x = torch.randn(2, 3)
    same, view, y, row = hostjit.compile(f)(x)
    assert same is x
    assert view.data_ptr() == x.data_ptr() and view._base is x
    assert row.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def test_results_do_not_change_at_the_next_call() -> None:
    fast = hostjit.compile(lambda x: (x * 2, (x + 1).t()))
    kept = fast(torch.ones(3, 3))
    copies = [tensor.clone() for tensor in kept]
    for _ in range(3):
        fast(torch.zeros(3, 3))
    for tensor, copy in zip(kept, copies, strict=True):
        assert_close(tensor, copy)


def test_inputs_are_written_in_place() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        x[0] = 7
        return x * 2

    fast = hostjit.compile(f)
    for _ in range(2):
        x, y = torch.randn(4), torch.randn(4)
        expected_x = x.clone()
        expected = f(expected_x, y)
        version = x._version
        assert_close(fast(x, y), expected)
        assert_close(x, expected_x)
        assert x._version > version


def test_written_inputs_that_alias() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    fast = hostjit.compile(f)
    fast(torch.zeros(4), torch.zeros(4))
    for overlap in (lambda t: t, lambda t: t.view(2, 2).view(4), lambda t: t.flip(0).flip(0)):
        x, expected_x = torch.zeros(4), torch.zeros(4)
        assert_close(fast(x, overlap(x)), f(expected_x, overlap(expected_x)))
        assert_close(x, expected_x)


def test_the_same_tensor_twice() -> None:
    fast = hostjit.compile(lambda x, y: x * 2 + y)
    x, y = torch.randn(3), torch.randn(3)
    assert_close(fast(x, x), x * 3)
    assert_close(fast(x, y), x * 2 + y)
    assert_close(fast(y, y), y * 3)


def test_module_changes_are_seen() -> None:
    model = MLP()
    fast = hostjit.compile(model)
    x = torch.randn(2, 16)

    def agree() -> None:
        assert_close(fast(x), model(x))

    agree()
    model.up.weight.add_(1)
    agree()
    model.up.weight = nn.Parameter(torch.randn(32, 16))
    agree()
    model.up.weight.data = torch.randn(32, 16)
    agree()
    model.load_state_dict(MLP().state_dict())
    agree()
    model.scale = 3.0
    agree()
    model.down = nn.Linear(32, 16, bias=False)
    agree()
    handle = model.up.register_forward_hook(lambda module, args, output: output * 2)
    agree()
    handle.remove()
    agree()
    model.double()
    x = x.double()
    agree()
    model.forward = lambda value: value * 5  # type: ignore[method-assign]
    agree()


def test_training_mode_and_buffers() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    fast = hostjit.compile(model)
    reference = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    reference.load_state_dict(model.state_dict())
    x = torch.randn(16, 8)
    for training in (True, False, True):
        model.train(training)
        reference.train(training)
        torch.manual_seed(1)
        found = fast(x)
        torch.manual_seed(1)
        assert_close(found, reference(x))
        assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))


SCALE = 2.0


def test_globals_and_closures_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    offset = 1.0

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE + offset

    fast = hostjit.compile(f)
    x = torch.randn(3)
    assert_close(fast(x), x * 2 + 1)
    monkeypatch.setitem(f.__globals__, "SCALE", 5.0)
    assert_close(fast(x), x * 5 + 1)
    offset = 4.0
    assert_close(fast(x), x * 5 + 4)


def test_python_side_effects_happen_at_each_call() -> None:
    seen: list[int] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x + 1

    fast = hostjit.compile(f)
    for _ in range(3):
        fast(torch.zeros(2))
    assert len(seen) == 3


def test_random_numbers_come_from_the_same_generator() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand_like(x) + x, torch.randn(3)

    fast = hostjit.compile(f)
    x = torch.randn(4)
    fast(x)
    torch.manual_seed(3)
    found = fast(x)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert_close(found, f(x))
    assert_close(after, torch.rand(1))


def test_modes_are_part_of_the_signature() -> None:
    fast = hostjit.compile(lambda x: x * 2)
    x = torch.randn(3)
    assert not fast(x).is_inference()
    with torch.inference_mode():
        assert fast(x).is_inference()
    assert not fast(x).is_inference()
    torch.set_default_dtype(torch.float64)
    try:
        make = hostjit.compile(lambda x: x + torch.ones(3))
        assert make(x).dtype == torch.float64
        torch.set_default_dtype(torch.float32)
        assert make(x).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast() -> None:
    model = nn.Linear(8, 8)
    fast = hostjit.compile(model)
    x = torch.randn(2, 8)
    assert fast(x).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(x).dtype == torch.bfloat16
        assert_close(fast(x), model(x))
    assert fast(x).dtype == torch.float32


def test_what_only_eager_can_train_says_so_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.detach().add_(1)

    fast = hostjit.compile(function)
    x = torch.ones(3, requires_grad=True)
    with torch.enable_grad():
        with pytest.warns(UserWarning, match="runs eagerly: .* changes an input in place"):
            fast(x)
        with no_warnings():
            fast(x)
    assert torch.equal(x, torch.full((3,), 3.0))


def test_transforms_around() -> None:
    fast = hostjit.compile(lambda x: torch.sin(x) * 2)
    x = torch.randn(4, 3)
    assert_close(torch.func.vmap(fast)(x), torch.sin(x) * 2)
    with torch.enable_grad():
        assert_close(torch.func.grad(lambda t: fast(t).sum())(x), torch.cos(x) * 2)


def test_methods_and_decorators() -> None:
    class Controller:
        def __init__(self) -> None:
            self.gain = torch.tensor(3.0)

        @hostjit.compile
        def act(self, x: torch.Tensor, *, shift: float = 1.0) -> torch.Tensor:
            return x * self.gain + shift

    controller = Controller()
    x = torch.randn(3)
    assert_close(controller.act(x), x * 3 + 1)
    assert_close(controller.act(x, shift=2.0), x * 3 + 2)
    controller.gain = torch.tensor(5.0)
    assert_close(controller.act(x), x * 5 + 1)
    assert_close(Controller().act(x), x * 3 + 1)

    @hostjit.compile(runtime="evaluator")
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert_close(f(x), x + 1)


def test_attributes_are_those_of_the_target() -> None:
    model = MLP()
    fast = hostjit.compile(model)
    assert fast.scale == 1.0
    assert next(iter(fast.parameters())) is model.up.weight
    assert fast.__wrapped__ is model
    with pytest.raises(AttributeError, match="nowhere"):
        _ = fast.nowhere


class Learner(torch.nn.Module):
    """Has attributes by the names of what compiled functions work with."""

    def __init__(self) -> None:
        super().__init__()
        self.target = torch.nn.Linear(2, 2)
        self.shapes, self.runtime, self.records, self.part = (3, 4), "fast", [1], "second"

    def arguments(self) -> str:
        return "the learner's"

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.target(x)
        return found


def test_attributes_are_not_those_that_compiling_works_with() -> None:
    model = Learner()
    fast = hostjit.compile(model)
    assert fast.target is model.target
    assert fast.arguments() == "the learner's"
    assert (fast.shapes, fast.runtime, fast.records, fast.part) == ((3, 4), "fast", [1], "second")
    fast.target = torch.nn.Linear(2, 2)
    assert fast.target is model.target
    fast(torch.ones(2))
    assert "program @Learner" in fast.host_ir()


def test_annotations_are_those_of_the_target() -> None:
    def scale(x: torch.Tensor, *, by: int = 2) -> torch.Tensor:
        return x * by

    fast = hostjit.compile(scale)
    assert typing.get_type_hints(fast) == typing.get_type_hints(scale)
    for name in ("target", "runtime", "shapes", "_count"):
        assert not hasattr(fast, name)


def test_threads_share_a_function() -> None:
    model = MLP()
    fast = hostjit.compile(model)
    inputs = [torch.randn(4, 16) for _ in range(8)]
    failures: list[BaseException] = []

    def work(x: torch.Tensor) -> None:
        try:
            with torch.no_grad():
                expected = model(x)
                for _ in range(200):
                    assert_close(fast(x), expected)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_compiled_function_is_collected_with_its_module() -> None:
    model = MLP()
    model.fast = hostjit.compile(model.forward)  # a cycle through the specialization
    model.fast(torch.randn(2, 16))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_operators_with_lists_among_their_results(runtime: str) -> None:
    def parts(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, [x * 2, y * 3, x - y], x * y

    with torch.library._scoped_library("hostjit_lists", "DEF") as library:
        library.define("parts(Tensor x, Tensor y) -> (Tensor, Tensor[], Tensor)")
        library.impl("parts", parts, "CompositeExplicitAutograd")
        torch.library.register_fake("hostjit_lists::parts", parts, lib=library)

        def function(x: torch.Tensor, y: torch.Tensor) -> Any:
            first, found, last = torch.ops.hostjit_lists.parts(x, y)
            return first + 1, found[0] + found[2], last * 2, found[1]

        fast = hostjit.compile(function, runtime=runtime)
        for _ in range(3):
            x, y = torch.randn(2, 4)
            torch.testing.assert_close(fast(x, y), function(x, y))
        assert "hostjit_lists::parts" in fast.host_ir()


def test_a_specialization_may_be_forgotten_while_it_runs() -> None:
    compiled: list[Any] = []

    @torch.library.custom_op("hostjit_test::forget", mutates_args=())
    def forget(x: torch.Tensor) -> torch.Tensor:
        for fast in compiled:
            fast.forget()
        gc.collect()
        return x.clone()

    @forget.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    compiled.append(hostjit.compile(lambda x: (forget(x) + 1, x * 2)))
    x = torch.randn(4)
    for _ in range(3):
        assert_close(compiled[0](x), (x + 1, x * 2))
        assert compiled[0].specializations == []


def test_many_signatures_warn_and_run_eagerly() -> None:
    fast = hostjit.compile(lambda x: x + 1, dynamic=False)
    with hostjit.knobs(enable="recompile_limit(3)"):
        for size in range(1, 4):
            fast(torch.zeros(size))
        with pytest.warns(UserWarning, match="has 3 specializations"):
            assert_close(fast(torch.zeros(7)), torch.ones(7))
        assert_close(fast(torch.zeros(8)), torch.ones(8))
    assert [found.program is None for found in fast.specializations] == [False] * 3 + [True]


def test_an_operator_that_hands_back_its_operand() -> None:
    torch.library.define("hostjit_test::same", "(Tensor x) -> Tensor")
    torch.library.impl("hostjit_test::same", "CompositeExplicitAutograd", lambda x: x)
    torch.library.register_fake("hostjit_test::same", torch.empty_like)
    same = torch.ops.hostjit_test.same

    fast = hostjit.compile(lambda x: (same(x * 2), x + 1))
    first, _ = fast(torch.ones(8))
    fast(torch.zeros(8))
    assert_close(first, torch.full((8,), 2.0))


def test_a_fusion_built_by_hand() -> None:
    graph = torch.fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    total = graph.call_function(torch.add, (a, b))
    graph.output((graph.call_function(torch.relu, (total,)), total))
    fast = hostjit.compile(graph)
    x, y = torch.randn(4, 8), torch.randn(8)
    for found, expected in zip(fast(x, y), (torch.relu(x + y), x + y), strict=True):
        assert_close(found, expected)
    assert fast.host_ir().count("launch_kernel(") == 1


@pytest.mark.parametrize("rows", [1, 3, 64, 600])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_every_size_and_thread_count(rows: int, transposed: bool) -> None:
    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = nn.functional.linear(x, w, b) if transposed else torch.addmm(b, x, w)
        return torch.relu(product)

    fast = hostjit.compile(f)
    x, b = torch.randn(rows, 700), torch.randn(650)
    w = torch.randn(650, 700) if transposed else torch.randn(700, 650)
    threads = torch.get_num_threads()
    try:
        for count in (1, 4, 1):
            torch.set_num_threads(count)
            assert_close(fast(x, w, b), f(x, w, b), rtol=1e-5, atol=1e-4)
    finally:
        torch.set_num_threads(threads)
    assert len(fast.specializations) == 1


@pytest.mark.filterwarnings("ignore:hostjit.*keeps meeting")
def test_calls_that_nothing_answers_are_seldom_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    specialize = Compilation.specialize

    def count(self: Any, *given: Any) -> Any:
        nonlocal asked
        asked += 1
        return specialize(self, *given)

    monkeypatch.setattr(Compilation, "specialize", count)
    with hostjit.knobs(enable="recompile_limit(1)"):
        fast = hostjit.compile(lambda x, name: x * len(name), fallback=False)
        x = torch.ones(3)
        for _ in range(400):
            for name in ("a", "bb"):  # a hit between any two misses
                assert_close(fast(x, name), x * len(name))
    assert len(fast.specializations) == 1
    assert asked < 30
