# SPDX-License-Identifier: Apache-2.0
"""What cannot be captured or compiled runs in parts or eagerly, and says so once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from in_parts import counted_captures
from no_warnings import no_warnings
from torch.testing import assert_close

import hostjit
from hostjit import _C
from hostjit.capturing.capture import capture
from hostjit.capturing.errors import CaptureFailure
from hostjit.compiling.bytecode_call import compiled_graph
from hostjit.lowering.lower import lower

# Where an operator raises: Dynamo of torch 2.12 and earlier stops there.
GOES_ON_IN_HANDLERS = hasattr(torch._dynamo.utils, "_get_fake_value_impl")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def masked(x: torch.Tensor) -> torch.Tensor:
    return (x * 2)[x > 0] + 1


def item(x: torch.Tensor) -> float:
    return x.sort().values[0, 0].item() + 1


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def distinct(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.unique(x.round(), return_counts=True)


def graph_break(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def resize(x: torch.Tensor) -> torch.Tensor:
    return (x + 0).resize_(1, 2)


def strict(x: torch.Tensor) -> Any:
    return torch._higher_order_ops.strict_mode(lambda x: x * 2, (x,))


def said_by(function: Callable[..., Any]) -> list[str]:
    """Return what calls of a compiled function warn of."""
    fast = hostjit.compile(function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for x in (torch.randn(4, 3), torch.randn(2, 3)):
                assert_close(fast(x), function(x))
                assert_close(fast(-x), function(-x))
    return [str(warning.message) for warning in caught if "hostjit" in str(warning.message)]


@pytest.mark.parametrize(
    ("function", "how"),
    [
        *((function, "in parts") for function in (masked, item, distinct)),
        *((function, "in parts") for function in (graph_break, resize)),
        (strict, "eagerly"),
    ],
)
def test_says_so_once(function: Callable[..., Any], how: str) -> None:
    said = said_by(function)
    assert len(said) == 1
    assert said[0].startswith(f"hostjit: '{function.__name__}' runs {how}: ")
    with pytest.raises(hostjit.CaptureError):
        hostjit.compile(function, fallback=False)(torch.randn(4, 3))


def test_says_nothing_where_recordings_follow() -> None:
    assert said_by(branch) == []
    with pytest.raises(hostjit.CaptureError):
        hostjit.compile(branch, fallback=False)(torch.randn(4, 3))


def test_a_program_that_cannot_be_compiled_runs_eagerly() -> None:
    fast = hostjit.compile(torch.sin)
    x = torch.randn(3)
    broken = mock.patch("hostjit.lowering.lower.lower", side_effect=KeyError("rule"))
    with broken, pytest.warns(UserWarning, match=r"runs eagerly: (.|\n)*KeyError\('rule'\)"):
        assert_close(fast(x), x.sin())
    assert_close(fast(x), x.sin())
    with broken, pytest.raises(hostjit.CaptureError, match="KeyError"):
        hostjit.compile(torch.sin, fallback=False)(x)


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.logsumexp(x, dim=()),
        lambda x: torch.nn.functional.pad(x[:, :0], [1, -1]),
    ],
)
def test_raises_where_eager_does(function: Callable[..., Any]) -> None:
    x = torch.randn(3, 2)
    with pytest.raises(RuntimeError) as eager:
        function(x)
    with pytest.raises(RuntimeError) as found:
        hostjit.compile(function)(x)
    assert type(found.value) is type(eager.value)


def test_a_call_that_raises_is_captured_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    fast = hostjit.compile(function)
    with counted_captures() as count:
        for _ in range(4):
            with pytest.raises(RuntimeError, match="cannot be multiplied"):
                fast(torch.randn(2, 3))
    assert count[0] <= 2  # a capture looks at one frame


def test_what_raised_is_captured_again_when_it_does_no_more() -> None:
    class Late(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    model = Late()
    fast = hostjit.compile(model)
    for _ in range(2):
        with pytest.raises(AttributeError):
            fast(torch.ones(3))
    model.weight = torch.nn.Parameter(torch.full((3,), 2.0))
    with torch.no_grad():
        for _ in range(3):
            assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))
        assert any(found.program is not None for found in fast.specializations)


def test_what_the_capture_alone_finds_wrong_is_captured_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    wrong = hostjit.CaptureError(CaptureFailure.USER_EXCEPTION, "it raises")
    fast = hostjit.compile(function)
    with mock.patch("hostjit.capturing.capture.capture", side_effect=wrong) as capture:
        with pytest.warns(UserWarning, match="runs in parts: something raises when it is captured"):
            assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))
        for _ in range(3):
            assert_close(fast(torch.ones(3)), torch.full((3,), 2.0))
    assert capture.call_count == 1


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def unlike_eager(x: torch.Tensor) -> torch.Tensor:
    y = doubled(x)
    if torch.compiler.is_compiling():
        raise AttributeError
    return y + 1


@pytest.mark.parametrize("shares_memory", [False, True])
def test_what_raises_in_the_capture_alone_runs_in_parts(shares_memory: bool) -> None:
    fast = hostjit.compile(lambda x, _: unlike_eager(x))
    x = torch.ones(3)
    other = x[:2] if shares_memory else torch.ones(2)
    how = "eagerly" if shares_memory else "in parts"
    torch.compiler.reset()
    with pytest.warns(UserWarning, match=f"runs {how}: something raises when it is captured"):
        assert_close(fast(x, other), x.sin() * 2 + 1)
    counters = torch._dynamo.utils.counters["stats"]
    before = counters["unique_graphs"]
    for _ in range(12):
        assert_close(fast(x, other), x.sin() * 2 + 1)
    assert counters["unique_graphs"] - before == (0 if shares_memory else 1)
    with pytest.raises(TypeError):
        fast(x, other, 3)


class Counter(torch.nn.Module):
    """Computes with a number of its own that differs at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x * self.count


@pytest.mark.filterwarnings("ignore:hostjit")
def test_calls_that_stay_eager_are_asked_for_seldom() -> None:
    model = Counter()
    fast = hostjit.compile(model)
    x = torch.ones(2)
    with mock.patch.object(fast.owner, "specialize", wraps=fast.owner.specialize) as specialize:
        for count in range(1, 1001):
            assert_close(fast(x), x * count)
    assert specialize.call_count < 50


@pytest.mark.filterwarnings("ignore:hostjit")
def test_calls_are_answered_again_after_many_that_stayed_eager() -> None:
    model = Counter()
    fast = hostjit.compile(model)
    x = torch.ones(2)
    for count in range(1, 301):
        assert_close(fast(x), x * count)

    def runs_eagerly() -> bool:
        model.count = 0
        seen = set()
        sys.setprofile(lambda frame, *_: seen.add(frame.f_code))
        try:
            assert_close(fast(x), x)
        finally:
            sys.setprofile(None)
        return Counter.forward.__code__ in seen

    assert sum(runs_eagerly() for _ in range(300)) < 130
    assert not runs_eagerly()


def test_bytecode_that_passes_on_other_tensors_than_were_captured_runs_eagerly() -> None:
    kept: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x * 2)
        return x + 1

    x = torch.randn(4)
    captured = capture(keep, (x,))
    assert captured.needs_bytecode
    program = _C.CompiledProgram(lower(captured.graph, captured.name))
    graph = compiled_graph(captured, program, (x,), {}, None)
    for given in (x, x.double(), torch.randn(2, 3), x):
        assert sorted(map(str, graph(given))) == sorted(map(str, (given * 2, given + 1)))


def handles(x: torch.Tensor) -> torch.Tensor:
    try:
        return x @ x[:1]
    except RuntimeError:
        return x * 2


def test_a_call_that_handles_what_an_operator_raises_is_told_the_truth() -> None:
    told = pytest.warns(UserWarning, match="or the call handles: .*matmul")
    with contextlib.nullcontext() if GOES_ON_IN_HANDLERS else told:
        assert_close(hostjit.compile(handles)(torch.ones(3, 3)), torch.full((3, 3), 2.0))


def tells_the_error(x: torch.Tensor) -> tuple[torch.Tensor, str]:
    try:
        return x @ x[:1], ""
    except RuntimeError as error:
        return x * 2, str(error)


def handles_another_class(x: torch.Tensor) -> torch.Tensor:
    try:
        return torch.unravel_index(x.long(), (2.5, 3))[0]  # type: ignore[arg-type]
    except RuntimeError:
        return x * 2
    except TypeError:
        return x * 3


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("function", [tells_the_error, handles_another_class])
def test_handlers_get_the_error_of_the_operator(function: Any, breaks: bool) -> None:
    def call(x: torch.Tensor) -> Any:
        if breaks:
            print(end="")
        return function(x + 1)

    fast = hostjit.compile(call)
    x = torch.arange(9.0).reshape(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert repr(fast(x)) == repr(call(x))


class Records(logging.Handler):
    """Keeps what is logged from the level of warnings on."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    handler = Records()
    # None of them hands on what it is given.
    loggers = [logging.getLogger(name) for name in (None, "torch", "torch._subclasses.fake_tensor")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.messages
    for logger in loggers:
        logger.removeHandler(handler)


def test_what_is_logged_is_seen(logged: list[str]) -> None:
    logging.getLogger("torch._subclasses.fake_tensor").error("a message")
    assert logged == ["a message"]


@pytest.mark.parametrize("breaks", [False, True])
def test_what_eager_raises_is_not_logged_before(breaks: bool, logged: list[str]) -> None:
    def mismatched(x: torch.Tensor) -> torch.Tensor:
        if breaks:
            print(end="")
        return (x + 1) @ x

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    filters = list(logger.filters)
    fast = hostjit.compile(mismatched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            with pytest.raises(RuntimeError, match="shapes"):
                fast(torch.ones(2, 3))
    assert not logged
    assert logger.filters == filters


def test_coroutines_are_awaited() -> None:
    async def scale(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return x * 2

    fast = hostjit.compile(scale)
    with pytest.warns(UserWarning, match="'.*scale' runs eagerly: it makes .*coroutines"):
        coroutine = fast(torch.ones(2))
    assert_close(asyncio.run(coroutine), torch.full((2,), 2.0))
    assert_close(asyncio.run(fast(torch.ones(3))), torch.full((3,), 2.0))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_without_sizes() -> None:
    fast = hostjit.compile(lambda x: x * 2)
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    with pytest.warns(UserWarning, match="runs eagerly: an argument is a nested tensor"):
        found = fast(torch.nested.nested_tensor(parts))
    for ours, part in zip(found.unbind(), parts, strict=True):
        assert_close(ours, part * 2)
    assert_close(fast(parts[0]), parts[0] * 2)
    assert len(fast.specializations) == 1


def test_generators_compute_when_they_are_asked() -> None:
    asked: list[int] = []

    def steps(x: torch.Tensor) -> Iterator[torch.Tensor]:
        while True:
            asked.append(len(asked))
            x = x * 2
            yield x

    fast = hostjit.compile(steps)
    with pytest.warns(UserWarning, match="'.*steps' runs eagerly: it makes generators"):
        generator = fast(torch.ones(2))
    assert isinstance(generator, types.GeneratorType) and not asked
    assert_close(next(generator), torch.full((2,), 2.0))
    assert_close(next(generator), torch.full((2,), 4.0))
    assert_close(next(fast(torch.ones(3, 3))), torch.full((3, 3), 2.0))
    assert len(fast.specializations) == 1


def test_values_of_numpy_are_left_to_eager_without_a_trace() -> None:
    numpy = pytest.importorskip("numpy")

    def step(x: Any) -> torch.Tensor:
        return torch.as_tensor(x) * 2

    fast = hostjit.compile(step)
    with pytest.warns(UserWarning, match=r"argument 0 is a NumPy value"):
        fast(numpy.float64(1))
    with no_warnings():
        for index in range(20):
            assert_close(fast(numpy.int64(index)), torch.tensor(2 * index))
            assert_close(fast(x=numpy.float64(index)), torch.tensor(2.0 * index).double())
    assert len(fast.specializations) == 0
    for index in range(150):  # calls that nothing answers are asked about ever less often
        assert_close(fast(torch.full((3,), index)), torch.full((3,), 2 * index))
    assert [bool(made.program) for made in fast.specializations] == [True]


def _has_package(name: str) -> bool:
    """As libraries ask, in code that Dynamo traces: the error is not one of its own."""
    import importlib.metadata

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.filterwarnings("ignore:hostjit")
def test_an_error_of_a_library_while_dynamo_traces_leaves_the_rest_to_parts() -> None:
    def called(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin() + 1

    def function(x: torch.Tensor) -> torch.Tensor:
        x = called(x)
        if _has_package("a-package-that-nobody-has"):
            x = x + 1
        return called(x)

    fast = hostjit.compile(function)
    before = _C.num_compiled_frames()
    for _ in range(3):
        x = torch.randn(4)
        assert_close(fast(x), function(x))
    assert _C.num_compiled_frames() > before
