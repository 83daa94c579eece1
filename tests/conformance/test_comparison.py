# SPDX-License-Identifier: Apache-2.0
"""The comparison sees what it claims to see."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from conformance.case import EAGERLY, PER_SIZE, Call, Case
from conformance.cases import calls_of
from conformance.comparison import DIFFERS, RAISES, Finding, Shared, compare
from conformance.resized import resized
from conformance.subjects import SUBJECTS, Subject


def judged(right: Callable[..., Any], wrong: Callable[..., Any], *args: Any) -> Finding:
    """Compare, as if `wrong` were what became of compiling `right`."""
    subject = Subject(lambda function: wrong, (("run", contextlib.nullcontext),))
    return compare(Call(right, args or (torch.ones(2, 3),), {}), subject)


def raise_value_error(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("wrong")


def raise_index_error(x: torch.Tensor) -> torch.Tensor:
    raise IndexError("wrong")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (lambda x: x + 1, lambda x: x + 2, "result 0: Tensor-likes are not close"),
        (lambda x: x + 1, lambda x: x.double() + 1, "dtype torch.float64"),
        (lambda x: x + 1, lambda x: (x + 1).T.contiguous().T, "strides (1, 2), expected (3, 1)"),
        (lambda x: x[0], lambda x: x[0].clone(), "shared as ['new'], expected ['argument 0 at 0']"),
        (lambda x: x[0], lambda x: x[1], "['argument 0 at 3'], expected ['argument 0 at 0']"),
        (lambda x: x, lambda x: x[:], "expected ['is argument 0']"),
        (lambda x: [x + 1] * 2, lambda x: [x + 1, x + 1], "expected ['new', 'result 0 at 0']"),
        (lambda x: x.add(1), lambda x: x.add_(1).clone(), "argument 0: Tensor-likes"),
        (lambda x: x.t_() + 1, lambda x: x.T + 1, "argument tensor 0 has shape"),
        (lambda x: x.sum().item(), lambda x: 7.0, "result 0 is 7.0, expected 6.0"),
        (lambda x: (x + 1,), lambda x: [x + 1], "structure"),
        (lambda x: x.cfloat().conj(), lambda x: x.cfloat().conj().resolve_conj(), "conjugate bit"),
    ],
)
def test_a_difference_is_found(
    right: Callable[..., Any], wrong: Callable[..., Any], message: str
) -> None:
    found = judged(right, wrong)
    assert found.kind == DIFFERS
    assert message in found.message


def test_exceptions_compare_by_class() -> None:
    assert judged(raise_value_error, raise_value_error) == Finding()
    for right, wrong in [
        (raise_value_error, raise_index_error),
        (raise_value_error, torch.relu),
        (torch.relu, raise_value_error),
    ]:
        assert judged(right, wrong).kind == RAISES


def test_values_of_a_nondeterministic_operator_do_not_count() -> None:
    entropy = torch.Generator()

    def draw(x: torch.Tensor) -> torch.Tensor:
        entropy.seed()
        return torch.rand(4, generator=entropy)

    assert judged(draw, draw) == Finding()


def test_eager_agrees_with_itself() -> None:
    x = torch.randn(3, 3)
    calls: list[Call] = [
        Call(torch.dropout, (x, 0.5, True), {}),
        Call(torch.Tensor.add_, (x, 1), {}),
        Call(torch.Tensor.to_sparse, (x,), {}),
        Call(torch.Tensor.item, (torch.tensor(float("nan")),), {}),
    ]
    for call in calls:
        assert compare(call, SUBJECTS["eager"]) == Finding()


def doubled_gradient(x: torch.Tensor) -> torch.Tensor:
    return x * 2 - x.detach()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (lambda x: x * 1, doubled_gradient, "gradient 0: Tensor-likes are not close"),
        (lambda x: x * 1, lambda x: x.detach() * 1, "requires_grad False, expected True"),
        (lambda x, y: x + y, lambda x, y: x + y.detach(), "gradients have types"),
    ],
)
def test_gradients_are_compared(
    right: Callable[..., Any], wrong: Callable[..., Any], message: str
) -> None:
    count = right.__code__.co_argcount
    args = tuple(torch.ones(2, 3, requires_grad=True) for _ in range(count))
    subject = Subject(lambda function: wrong, (("run", contextlib.nullcontext),))
    found = compare(Call(right, args, {}, differentiate=lambda result: [result]), subject)
    assert found.kind == DIFFERS
    assert message in found.message


def test_the_state_of_a_module_is_compared() -> None:
    module = torch.nn.BatchNorm1d(3)

    def forget(module: Any) -> Callable[..., Any]:
        return lambda x: copy.deepcopy(module)(x)

    call = Call(module, (torch.randn(4, 3),), {})
    assert compare(call, SUBJECTS["eager"]) == Finding()
    found = compare(call, Subject(forget, (("run", contextlib.nullcontext),)))
    assert found.kind == DIFFERS
    assert "argument" in found.message


def test_steps_of_an_optimizer_are_compared() -> None:
    def twice(step: Callable[..., Any]) -> Callable[..., Any]:
        return lambda: (step(), step())

    (call, *_) = calls_of(Case("optim.SGD", "float32"))
    assert compare(call, SUBJECTS["eager"]) == Finding()
    assert compare(call, Subject(twice, (("run", contextlib.nullcontext),))).kind == DIFFERS


def test_a_call_that_the_subject_runs_eagerly_says_so() -> None:
    call = Call(torch.Tensor.item, (torch.ones(1),), {})
    found = compare(call, SUBJECTS["hostjit.compile"])
    assert found.kind == EAGERLY
    assert found.message.startswith("hostjit: 'called")


def test_half_precision_may_be_closer_to_the_exact_result() -> None:
    x = torch.tensor([1.0, 1 / 256], dtype=torch.bfloat16)
    third = torch.tensor(1 / 3, dtype=torch.bfloat16)

    def rounds(x: torch.Tensor) -> torch.Tensor:
        return ((x + 100) - 100) * third.to(x.dtype)

    def exact(x: torch.Tensor) -> torch.Tensor:
        return (x.double() * third.double()).to(x.dtype)

    def worse(x: torch.Tensor) -> torch.Tensor:
        return rounds(x) + 1

    assert judged(rounds, exact, x) == Finding()
    assert judged(rounds, worse, x).kind == DIFFERS
    assert judged(exact, rounds, x).kind == DIFFERS


def test_a_shared_subject_compiles_once() -> None:
    made: list[Callable[..., Any]] = []

    def compile_first(function: Callable[..., Any]) -> Callable[..., Any]:
        made.append(function)
        return function

    for shared, expected in ((True, 1), (False, 2)):
        made.clear()
        subject = Subject(compile_first, (("run", contextlib.nullcontext),), shared=shared)
        kept: Shared = {}
        for size in (2, 3):
            assert compare(Call(torch.abs, (torch.ones(size),), {}), subject, kept) == Finding()
        assert len(made) == expected


def test_other_sizes_are_called_too() -> None:
    def compile_with(wrong: float) -> Callable[[Callable[..., Any]], Any]:
        def compiled(function: Callable[..., Any]) -> Any:
            sizes: set[torch.Size] = set()

            def run(x: torch.Tensor) -> torch.Tensor:
                sizes.add(x.shape)
                result: torch.Tensor = function(x)
                return result + wrong if len(sizes) == 3 else result

            run.sizes = sizes  # type: ignore[attr-defined]
            return run

        return compiled

    call = Call(torch.abs, (torch.ones(2, 3),), {})
    runs = (("run", contextlib.nullcontext),)
    for wrong, programs, kind in ((0.0, 2, ""), (0.0, 3, PER_SIZE), (1.0, 2, DIFFERS)):
        subject = Subject(
            compile_with(wrong),
            runs,
            programs=lambda made, most=programs: min(len(made.sizes), most),
        )
        found = compare(call, subject)
        assert found.kind == kind
        assert not kind or "[(4, 5)]" in found.message


def test_sizes_that_eager_does_not_take_stay() -> None:
    call = Call(torch.nn.Linear(3, 4), (torch.ones(2, 3),), {})
    ((first, second),) = resized(call)
    assert [other.args[0].shape for other in (first, second)] == [(3, 3), (4, 3)]
    assert resized(Call(torch.abs, (torch.ones(1),), {})) == []
