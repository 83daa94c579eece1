# SPDX-License-Identifier: Apache-2.0
"""Calls by Dynamo's frames, where these take longer than eager mode, run eagerly."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import hostjit
from hostjit.compiling import frames
from hostjit.compiling.frame_trial import FrameTrial

NOWHERE = io.StringIO()


def run(trial: FrameTrial, by_frames: float, eager: float, calls: int = 64) -> list[bool]:
    """Note calls that take so long; return which of them ran by frames."""
    ran = []
    for _ in range(calls):
        ran.append(trial.by_frames)
        if not trial.is_over:
            way = trial.by_frames
            trial.note(by_frames if way else eager, by_frames=way, compiled=len(ran) <= 2)
    return ran


def test_the_faster_way_is_found() -> None:
    trial = FrameTrial()
    ran = run(trial, by_frames=3.0, eager=2.0)
    assert trial.is_over
    assert ran[:6] == [True] * 6
    assert ran.count(True) == 2 + 3 + 8
    assert ran[-20:] == [False] * 20
    trial = FrameTrial()
    assert run(trial, by_frames=2.0, eager=1.9)[-20:] == [True] * 20
    assert trial.is_over


def test_one_slow_call_decides_nothing() -> None:
    trial = FrameTrial()
    for number in range(40):
        if not trial.is_over:
            slow = 100.0 if number in (7, 11, 12) else 0.0
            seconds = slow + (1.0 if trial.by_frames else 2.0)
            trial.note(seconds, by_frames=trial.by_frames, compiled=False)
    assert trial.is_over
    assert trial.by_frames


def test_code_that_is_compiled_again_and_again_is_not_timed_for_ever() -> None:
    trial = FrameTrial()
    for number in range(80):
        if not trial.is_over:
            trial.note(1.0, by_frames=True, compiled=number % 3 == 0)
    assert trial.is_over
    assert trial.by_frames


def test_calls_of_several_threads_are_counted_in_any_order() -> None:
    for all_by_frames in (False, True):
        trial = FrameTrial()
        for _ in range(80):
            trial.note(1.0, by_frames=True, compiled=False)
            if not all_by_frames:
                trial.note(3.0, by_frames=False, compiled=False)
        assert trial.is_over
        assert trial.by_frames


class Helper:
    """Another for each call."""

    def __init__(self, scale: float) -> None:
        self.scale = [scale]

    def work(self, x: Tensor) -> Tensor:
        y = (x * self.scale[0]).relu() + 1
        return y.tanh()


def by_frames(x: Tensor) -> Tensor:
    helper = Helper(2.0)
    print("made", file=NOWHERE)
    return helper.work(x) - 1


@pytest.mark.filterwarnings("ignore:hostjit")
@pytest.mark.parametrize("eager_is_faster", [False, True])
def test_calls_go_on_as_the_trial_says(
    eager_is_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[FrameTrial] = []
    note = FrameTrial.note

    def noted(trial: FrameTrial, _: float, *, by_frames: bool, compiled: bool) -> None:
        if trial not in trials:
            trials.append(trial)
        seconds = 2.0 if by_frames is eager_is_faster else 1.0
        note(trial, seconds, by_frames=by_frames, compiled=compiled)

    monkeypatch.setattr(FrameTrial, "note", noted)
    used: list[bool] = []
    call = frames.FrameHook._call

    def called(hook: frames.FrameHook, by_frames: bool, args: Any, kwargs: Any) -> Any:
        used.append(by_frames)
        return call(hook, by_frames, args, kwargs)

    monkeypatch.setattr(frames.FrameHook, "_call", called)
    torch.manual_seed(0)
    fast = hostjit.compile(by_frames)
    with torch.no_grad():
        for _ in range(40):
            x = torch.randn(3)
            assert_close(fast(x), by_frames(x))
    decided = [trial for trial in trials if trial.is_over]
    assert decided
    assert all(trial.by_frames is not eager_is_faster for trial in decided)
    assert used[-1] is not eager_is_faster


@pytest.mark.filterwarnings("ignore:hostjit")
def test_results_with_gradients_are_not_timed() -> None:
    torch.manual_seed(0)
    fast = hostjit.compile(by_frames)
    for _ in range(30):
        x = torch.randn(3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        fast(x).sum().backward()
        by_frames(twin).sum().backward()
        assert_close(x.grad, twin.grad)
