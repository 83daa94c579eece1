# SPDX-License-Identifier: Apache-2.0
"""What a call raises in eager mode, it raises through `torch.compile(..., backend="hostjit")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from no_warnings import no_warnings
from torch import Tensor
from torch._dynamo.exc import InternalTorchDynamoError, TorchRuntimeError

from hostjit import backend
from hostjit.backend.frames import FRAMES_LEFT

X = torch.arange(12.0).reshape(3, 4)

ERRORS: list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = [
    ("sizes", lambda x, y: x @ y, (X, torch.ones(4)), (X, torch.ones(5))),
    ("dims", lambda x, dim: x.sum(dim), (X, 1), (X, 2)),
    ("kinds", lambda x, n: x[:n], (X, 2), (X, 1.5)),
    ("lists", lambda x, n: (x, [1, 2, 3][:n]), (X, 2), (X, 1.5)),
    ("dtypes", lambda x: torch.linalg.det(x), (torch.eye(2),), (torch.eye(2).long(),)),
    ("values", lambda x, name: F(x, reduction=name), (X, "sum"), (X, "some")),
    ("places", lambda x, i: x[i], (X, 2), (X, 3)),
]


def F(x: Tensor, reduction: str) -> Tensor:  # noqa: N802
    return torch.nn.functional.mse_loss(x, x + 1, reduction=reduction)


@pytest.mark.filterwarnings("ignore:hostjit. a call of '<lambda>' runs eagerly")
@pytest.mark.parametrize(("name", "function", "good", "bad"), ERRORS, ids=lambda x: str(x)[:8])
def test_the_error_is_eagers(
    name: str, function: Callable[..., Any], good: tuple[Any, ...], bad: tuple[Any, ...]
) -> None:
    with pytest.raises(Exception) as expected:
        function(*bad)
    fast = torch.compile(function, backend="hostjit")
    for given in (bad, good, bad, good):
        if given is good:
            torch.testing.assert_close(fast(*good), function(*good))
            continue
        with pytest.raises(Exception) as found:
            fast(*bad)
        assert type(found.value) is type(expected.value)
        assert "from user code" not in str(found.value)  # which Dynamo adds


def test_what_came_before_the_error_has_happened() -> None:
    log: list[int] = []

    def write(x: Tensor, y: Tensor) -> Tensor:
        log.append(len(log))
        x.add_(1)
        return x + y

    fast = torch.compile(write, backend="hostjit")
    x = torch.zeros(3)
    for count in (1, 2):
        with pytest.raises(RuntimeError, match="must match the size"):
            fast(x, torch.zeros(4))
        assert x.tolist() == [float(count)] * 3
        assert len(log) == count


def test_one_graph_says_what_dynamo_says() -> None:
    fast = torch.compile(lambda x, y: x @ y, backend="hostjit", fullgraph=True)
    with pytest.raises(TorchRuntimeError):
        fast(X, torch.ones(5))


def test_code_that_always_raises_is_compiled_no_more() -> None:
    fast = torch.compile(lambda x, y: x + y, backend="hostjit")
    torch.testing.assert_close(fast(X, X), X + X)

    def fail() -> None:
        with pytest.raises(RuntimeError, match="must match the size"):
            fast(X, torch.ones(5))

    with no_warnings():
        for _ in range(torch._dynamo.config.recompile_limit - 1):
            fail()
    with pytest.warns(UserWarning, match="new kinds of calls of '<lambda>' run eagerly"):
        fail()
    with no_warnings():
        fail()
        torch.testing.assert_close(fast(X, X), X + X)


def test_a_failure_of_the_tracer_is_said_once_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise InternalTorchDynamoError("a fault")

    monkeypatch.setattr(backend, "convert_as_dynamo", fail)
    counts = torch._dynamo.utils.counters["hostjit"]
    before = counts[FRAMES_LEFT]
    fast = torch.compile(lambda x: x + 1, backend="hostjit")
    with pytest.warns(UserWarning, match="PyTorch's tracer fails: a fault"):
        assert torch.equal(fast(X), X + 1)
    with no_warnings():
        assert torch.equal(fast(X), X + 1)
    assert counts[FRAMES_LEFT] == before + 2
