# SPDX-License-Identifier: Apache-2.0
"""What is computed to compare the values that were read is not computed again."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hostjit

LARGE = 64
WEIGHT = torch.randn(LARGE, LARGE, generator=torch.Generator().manual_seed(3)) / 8


def inputs(seed: int = 0) -> Tensor:
    return torch.randn(LARGE, LARGE, generator=torch.Generator().manual_seed(seed))


def a_result_that_decides(x: Tensor) -> Any:
    y = x @ WEIGHT
    if y.sum() > 1e9:
        return y
    return y, torch.tanh(y @ WEIGHT)


def a_view_of_what_decides(x: Tensor) -> Any:
    y = torch.tanh(x @ WEIGHT)
    rows = y[1:3]
    if rows.max() > 1e9:
        return rows
    return y.t(), rows * 2, y[0]


def one_of_two_results(x: Tensor) -> Any:
    least, places = (x @ WEIGHT).min(dim=1)
    if least.sum() > 1e9:
        return least
    return places, least + 1


def an_argument_that_is_written(x: Tensor) -> Any:
    x.mul_(2)
    y = x @ WEIGHT
    x.add_(y)
    if x.sum() > 1e9:
        return y
    x.sub_(1)
    return y, x[0]


def several_decisions(x: Tensor) -> Any:
    for step in range(5):
        moved = torch.tanh(x @ WEIGHT)
        rates = (0.5,) if (moved - x).abs().mean() < 1e9 else (0.25, step)
        x = x + rates[0] * moved
    return x, moved


def a_number_among_the_results(x: Tensor) -> Any:
    y = x @ WEIGHT
    norm = y.norm().item()
    if norm > 1e9:
        return y
    return y / norm, norm


def values_of_many_elements(x: Tensor) -> Any:
    y = torch.tanh(x @ WEIGHT)
    signs = (y[0, :3] > 2).tolist()
    return y + sum(signs), signs


PROGRAMS = [
    *(a_result_that_decides, a_view_of_what_decides, one_of_two_results),
    *(an_argument_that_is_written, several_decisions, a_number_among_the_results),
    values_of_many_elements,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_results_are_those_of_eager_mode(
    each_runtime: str, program: Callable[[Tensor], Any]
) -> None:
    recorded = hostjit.capture(program)
    kept = []
    for seed in range(6):
        ours, eagers = inputs(seed % 3), inputs(seed % 3)
        found, expected = recorded(ours), program(eagers)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours, eagers)
        kept.append((found, copy.deepcopy(found)))
    for found, as_it_was in kept:  # each call has memory of its own
        torch.testing.assert_close(found, as_it_was, rtol=0, atol=0)


def test_products_are_computed_once(each_runtime: str) -> None:
    recorded = hostjit.capture(several_decisions)
    for seed in range(4):
        recorded(inputs(seed))
    assert "tanh" not in recorded.host_ir() and "matmul" not in recorded.host_ir()


def test_little_is_computed_again() -> None:
    """One more tensor takes longer than four operators on a few elements."""
    scale = torch.tensor([0.5, 2.0])

    def program(x: Tensor) -> Tensor:
        y = x * scale + 1
        return y - 1 if y.sum() < 1e9 else y

    recorded = hostjit.capture(program)
    for _ in range(4):
        torch.testing.assert_close(recorded(torch.ones(2)), torch.tensor([0.5, 2.0]))
    assert "%handed_on" not in recorded.host_ir()


def test_a_step_that_looks_at_its_gradients(each_runtime: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(LARGE, LARGE), nn.Tanh(), nn.Linear(LARGE, 4))
    models = [model, copy.deepcopy(model)]

    def step_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            if not torch.isfinite(loss):
                return loss
            loss.backward()
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
            if norm < 1e9:
                optimizer.step()
            return loss

        return step

    eager, recorded = step_of(models[0]), hostjit.capture(step_of(models[1]))
    for seed in range(6):
        torch.testing.assert_close(recorded(inputs(seed)), eager(inputs(seed)))
        torch.testing.assert_close([*models[1].parameters()], [*models[0].parameters()])
    nothing = torch.full((LARGE, LARGE), torch.nan)
    assert recorded(nothing).isnan() and eager(nothing).isnan()
    torch.testing.assert_close([*models[1].parameters()], [*models[0].parameters()])


def test_another_way_is_another_program(each_runtime: str) -> None:
    def program(x: Tensor) -> Tensor:
        y = torch.tanh(x @ WEIGHT)
        if y[0, 0] > 0:
            y = y @ WEIGHT
        return y * 2

    recorded = hostjit.capture(program)
    for seed in [*range(6), *range(6)]:
        torch.testing.assert_close(recorded(inputs(seed)), program(inputs(seed)))


def test_saved_programs_hand_on(each_runtime: str, tmp_path: Path) -> None:
    recorded = hostjit.capture(several_decisions)
    for seed in range(3):
        recorded(inputs(seed))
    hostjit.save(recorded, tmp_path / "decisions.hostjit")
    loaded = hostjit.load(tmp_path / "decisions.hostjit")
    torch.testing.assert_close(loaded(inputs(7)), several_decisions(inputs(7)))
    assert "tanh" not in loaded.host_ir()


def test_threads_have_values_of_their_own() -> None:
    recorded = hostjit.capture(several_decisions)
    expected = [several_decisions(inputs(seed)) for seed in range(4)]
    for seed in range(4):
        recorded(inputs(seed))
    wrong: list[int] = []

    def run(seed: int) -> None:
        x = inputs(seed)
        for _ in range(200):
            try:
                torch.testing.assert_close(recorded(x), expected[seed])
            except AssertionError:
                wrong.append(seed)

    threads = [threading.Thread(target=run, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
