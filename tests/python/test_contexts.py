# SPDX-License-Identifier: Apache-2.0
"""Contexts and settings inside of a compiled function: results are eager's, and so is what stays.

Whatever a call does, the thread's state afterwards is what an eager call would have left.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

import hostjit
from hostjit.capturing import capture

COMPILERS: dict[str, Callable[..., Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
AMBIENT: dict[str, Callable[[], Any]] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}
torch.manual_seed(0)
LINEAR = nn.Linear(4, 4)
ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True)


def state() -> dict[str, Any]:
    torch.autocast_increment_nesting()
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "autocast nesting": torch.autocast_decrement_nesting(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "default dtype": torch.get_default_dtype(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "included": str(torch._C._dispatch_tls_local_include_set()),
        "excluded": str(torch._C._dispatch_tls_local_exclude_set()),
    }


@pytest.fixture(autouse=True)
def _same_state_afterwards() -> Iterator[None]:
    torch.compiler.reset()
    before = state()
    yield
    assert state() == before
    x = torch.ones(3, requires_grad=True)
    (x + 1).sum().backward()  # the dispatcher works, and autograd records
    assert x.grad is not None and x.grad.tolist() == [1, 1, 1]


def facts(result: Any) -> Any:
    return pytree.tree_map(lambda x: (x.is_inference(), x.requires_grad, x.dtype), result)


def assert_same(found: Any, expected: Any) -> None:
    assert facts(found) == facts(expected)
    torch.testing.assert_close(found, expected)


def same_as_eager(
    compiler: str, function: Callable[..., Any], ambient: str = "grad", says: str | None = None
) -> None:
    """Compare two calls, what they return and what they leave behind, and what is said of them."""
    compiled = COMPILERS[compiler](function)
    for _ in range(2):
        with AMBIENT[ambient](), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = torch.arange(12.0).reshape(3, 4)
            before = state()
            expected = function(x.clone())
            assert state() == before
            assert_same(compiled(x.clone()), expected)
            assert state() == before
        texts = [str(warning.message) for warning in said if "hostjit" in str(warning.message)]
        assert len(texts) == (says is not None), texts
        assert all(says is not None and says in text for text in texts), texts
        says = None  # once


def pairs(x: torch.Tensor) -> Any:
    return x[0] * 2, x[1:]


def transposed_weight(x: torch.Tensor) -> Any:
    return x @ LINEAR.weight.t()


def attention(x: torch.Tensor) -> Any:
    return ATTENTION(x[None], x[None], x[None])[0]


def viewed(x: torch.Tensor) -> Any:
    return x.view(-1).sum()


def unbound(x: torch.Tensor) -> Any:
    return [row + 1 for row in x]


def chunked(x: torch.Tensor) -> Any:
    return x.chunk(2, -1)[0] * 2


def cached(x: torch.Tensor) -> Any:
    cache = torch.zeros(3, 4)
    return cache[1:].copy_(x[:2]) + 1


def written(x: torch.Tensor) -> Any:
    x[1:].add_(1)
    return x


def linear(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = LINEAR(x)
    return y * 2


IN_INFERENCE_MODE = [
    pairs,
    transposed_weight,
    attention,
    viewed,
    unbound,
    chunked,
    cached,
    written,
    linear,
]


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", IN_INFERENCE_MODE)
def test_inference_mode_inside_is_compiled(
    function: Callable[..., Any], compiler: str, ambient: str
) -> None:
    def body(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            return function(x)

    same_as_eager(compiler, body, ambient)
    same_as_eager(compiler, torch.inference_mode()(function), ambient)


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
@pytest.mark.parametrize("ambient", ["grad", "no_grad"])
@pytest.mark.parametrize("wrap", [hostjit.compile, hostjit.capture])
@pytest.mark.parametrize("function", IN_INFERENCE_MODE)
def test_inference_mode_is_entered_without_python(
    function: Callable[..., Any], wrap: Callable[..., Any], ambient: str, runtime: str
) -> None:
    call = torch.inference_mode()(function)
    fast = wrap(call, runtime=runtime)
    with AMBIENT[ambient]():
        for number in range(4):
            x = torch.arange(12.0).reshape(3, 4) + number
            assert_same(fast(x.clone()), call(x.clone()))
            assert not torch.is_inference_mode_enabled()
    (specialization,) = fast.specializations
    assert specialization.describe()["route"] is None


@pytest.mark.parametrize("runtime", ["jit", "evaluator"])
def test_an_error_leaves_inference_mode(runtime: str) -> None:
    @torch.inference_mode()
    def call(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.gather(0, index)

    for wrap in (hostjit.compile, hostjit.capture):
        fast, x, index = wrap(call, runtime=runtime), torch.ones(3), torch.tensor([0, 2])
        for _ in range(3):
            fast(x, index)
        with pytest.raises(RuntimeError, match="out of bounds"):
            fast(x, index + 1)
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        assert fast(x, index).is_inference()


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_parameter_may_be_written_in_inference_mode(compiler: str) -> None:
    expected, found = (nn.Parameter(torch.ones(3)) for _ in range(2))

    @torch.inference_mode()
    def step(weight: torch.Tensor) -> torch.Tensor:
        weight.mul_(0.5).add_(1)
        return weight

    compiled = COMPILERS[compiler](step)
    for _ in range(2):
        step(expected)
        assert compiled(found) is found
        assert found.tolist() == expected.tolist() and found.requires_grad and found.is_leaf
        assert found._version > 0


def test_inference_mode_inside_keeps_sizes_open() -> None:
    compiled = hostjit.compile(torch.inference_mode()(lambda x: (x * 2).sum(0) + x[0]))
    for size in (3, 4, 5, 6):
        x = torch.arange(float(size * 2)).reshape(size, 2)
        assert torch.equal(compiled(x), (x * 2).sum(0) + x[0])
        assert compiled(x).is_inference()
    assert len(compiled.specializations) == 2


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_graph_break_in_inference_mode(compiler: str) -> None:
    def branch(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = x[0] + 1
            y = y * 2 if y.sum() > 0 else y
        return y, y + 1

    compiled = COMPILERS[compiler](branch)
    x = torch.ones(3, 4)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = compiled(x)
        assert_same(found, branch(x))


def test_a_captured_program_runs_in_its_inference_mode() -> None:
    x = torch.ones(3, 4)
    program = capture(torch.inference_mode()(pairs), (x,))
    assert program.in_inference_mode
    assert_same(program.run(x), torch.inference_mode()(pairs)(x))


def prepared(x: torch.Tensor) -> Any:
    y = x * 2 - 1
    with torch.inference_mode():
        return LINEAR(y)


def scaled(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = LINEAR(x)
    return y * 2, y.argmax(-1), x


def viewed_outside(x: torch.Tensor) -> Any:
    row = x[:1]
    with torch.inference_mode():
        y = LINEAR(row)
    return y.squeeze(0), x[1:]


def kept(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = LINEAR(x)
    x[1:].copy_(y[1:])
    x[0] = y[0]
    return x


def twice(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = LINEAR(x)
    z = y + x
    with torch.inference_mode():
        return LINEAR(z) + LINEAR.weight.t()[0]


def array(x: torch.Tensor) -> Any:
    y = torch.from_numpy(x.numpy()).float()
    with torch.inference_mode():
        y = LINEAR(y)
    return torch.from_numpy(y.numpy() + 1)


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    "function", [prepared, scaled, viewed_outside, kept, twice, array], ids=lambda f: f.__name__
)
def test_a_part_in_inference_mode_is_compiled(
    function: Callable[..., Any], compiler: str, ambient: str
) -> None:
    same_as_eager(compiler, function, ambient)


def saved_for_backward(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y * LINEAR.weight


def written_outside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
    return y.add_(1) + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (saved_for_backward, "cannot be saved for backward"),
        (written_outside, "Inplace update to inference tensor"),
    ],
)
def test_what_inference_tensors_refuse_is_refused(
    function: Callable[..., Any], text: str, compiler: str
) -> None:
    compiled = COMPILERS[compiler](function)
    for call in (function, compiled, compiled):
        with pytest.raises(RuntimeError, match=text):
            call(torch.ones(4, 4))
    with torch.inference_mode():
        assert_same(compiled(torch.ones(4, 4)), function(torch.ones(4, 4)))


def then_outside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x[0] * 2
    return y, y + 1


def outside_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            return x[1] * 3, y


@pytest.mark.parametrize("ambient", AMBIENT)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", [then_outside, outside_inside])
def test_several_inference_modes_run_eagerly(
    function: Callable[..., Any], compiler: str, ambient: str
) -> None:
    is_compiled = ambient == "inference" and function is then_outside
    says = None if is_compiled else "a part of the call is computed in another inference mode"
    same_as_eager(compiler, function, ambient, says)


def test_without_a_fallback_several_inference_modes_are_refused() -> None:
    with pytest.raises(hostjit.CaptureError, match="another inference mode"):
        hostjit.compile(then_outside, fallback=False)(torch.ones(3, 4))


def wrong_out(x: torch.Tensor) -> Any:
    torch.add(x, 1, out=torch.empty(3, 4, dtype=torch.int32))
    return x


def wrong_write(x: torch.Tensor) -> Any:
    x.expand(2, 3, 4).add_(1)
    return x


def overlapping_copy(x: torch.Tensor) -> Any:
    x[1:].copy_(x[:-1])
    return x


def raising(x: torch.Tensor) -> Any:
    y = x * 2
    raise ValueError(str(y.shape))


def lazy(x: torch.Tensor) -> Any:
    return torch.complex(x, x).conj()


def sparse(x: torch.Tensor) -> Any:
    return x.to_sparse()


CONTEXTS: dict[str, Callable[[], Any]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.float16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "attention": lambda: sdpa_kernel(SDPBackend.MATH),
    "inference": torch.inference_mode,
    "no grad": torch.no_grad,
    "grad": torch.enable_grad,
}
FAILING = [wrong_out, wrong_write, overlapping_copy, raising, lazy, sparse]


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("function", FAILING)
def test_contexts_are_left_when_capture_fails_or_eager_raises(
    function: Callable[..., Any], context: str, compiler: str, needs_grad: bool
) -> None:
    def body(x: torch.Tensor) -> Any:
        with CONTEXTS[context]():
            return function(x * 1)

    compiled = COMPILERS[compiler](body)
    before = state()
    for _ in range(2):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_(needs_grad)
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            compiled(x)
        assert state() == before


def grad_off(x: torch.Tensor) -> Any:
    torch.set_grad_enabled(False)
    return x * 2


def grad_off_in_between(x: torch.Tensor) -> Any:
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3


def grad_toggled(x: torch.Tensor) -> Any:
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


def autocast_on(x: torch.Tensor) -> Any:
    torch.set_autocast_enabled("cpu", True)
    return x @ x.t()


def autocast_dtype(x: torch.Tensor) -> Any:
    torch.set_autocast_dtype("cpu", torch.float16)
    return x * 2


def attention_settings(x: torch.Tensor) -> Any:
    torch.backends.cuda.enable_flash_sdp(False)
    return x * 2


def matmul_precision(x: torch.Tensor) -> Any:
    torch.set_float32_matmul_precision("high")
    return x @ x.t()


SETTINGS = [
    grad_off,
    grad_off_in_between,
    grad_toggled,
    autocast_on,
    autocast_dtype,
    attention_settings,
    matmul_precision,
]


@contextlib.contextmanager
def settings_put_back() -> Iterator[None]:
    dtype, precision = torch.get_autocast_dtype("cpu"), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_grad_enabled(True)
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", dtype)
        torch.backends.cuda.enable_flash_sdp(True)
        torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("function", SETTINGS)
def test_settings_last_as_in_eager_mode(
    function: Callable[..., Any], compiler: str, needs_grad: bool
) -> None:
    if compiler == "backend" and function is autocast_on:
        pytest.skip("Dynamo switches autocast back after the graph, whatever the backend")

    def outcome(run: Callable[..., Any]) -> Any:
        x = torch.arange(12.0).reshape(3, 4).requires_grad_(needs_grad)
        with settings_put_back():
            return run(x), state()

    compiled = COMPILERS[compiler](function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            (found, found_state), (expected, expected_state) = outcome(compiled), outcome(function)
            assert_same(found, expected)
            assert found_state == expected_state


def test_the_dtype_of_autocast_for_cuda_is_part_of_the_state() -> None:
    @hostjit.compile
    def convert(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.get_autocast_dtype("cuda"))

    before = torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    try:
        for dtype in (torch.float16, torch.bfloat16, torch.float16):
            torch.set_autocast_dtype("cuda", dtype)
            assert convert(torch.ones(2)).dtype is dtype
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", before)
