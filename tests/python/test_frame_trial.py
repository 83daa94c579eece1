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
from hostjit import _C
from hostjit.parts import frames
from hostjit.parts.frame_trial import FrameTrial, Way

NOWHERE = io.StringIO()


WAYS = [Way.FRAMES, Way.EAGER]


def run(trial: FrameTrial, seconds: dict[Way, float], calls: int = 64) -> list[Way]:
    """Note calls that take so long; return how they ran."""
    ran = []
    for _ in range(calls):
        ran.append(trial.way)
        if not trial.is_over:
            trial.note(seconds[trial.way], trial.way, compiled=len(ran) <= 2)
    return ran


def test_the_faster_way_is_found() -> None:
    trial = FrameTrial(WAYS)
    ran = run(trial, {Way.FRAMES: 3.0, Way.EAGER: 2.0})
    assert trial.is_over
    assert ran[:6] == [Way.FRAMES] * 6
    assert ran.count(Way.FRAMES) == 2 + 3 + 12
    assert ran[-20:] == [Way.EAGER] * 20
    trial = FrameTrial(WAYS)
    assert run(trial, {Way.FRAMES: 2.0, Way.EAGER: 1.9})[-20:] == [Way.FRAMES] * 20
    assert trial.is_over


def test_a_backward_pass_that_is_to_come_counts() -> None:
    for seconds, expected in ((1.4, Way.FRAMES), (1.6, Way.EAGER)):
        trial = FrameTrial(WAYS)
        while not trial.is_over:
            taken = seconds if trial.way is Way.FRAMES else 1.0
            trial.note(taken, trial.way, compiled=False, with_gradients=True)
        assert trial.way is expected


@pytest.mark.parametrize("fastest", Way)
def test_the_fastest_of_three_ways_is_found(fastest: Way) -> None:
    trial = FrameTrial([*Way])
    ran = run(trial, {way: 2.0 if way is fastest else 3.0 for way in Way})
    assert trial.is_over
    timed = ran[2 + 3 : 2 + 3 + 36]
    assert [timed.count(way) for way in Way] == [12, 12, 12]
    assert ran[-20:] == [fastest] * 20


@pytest.mark.parametrize("ways", [WAYS, [*Way]])
@pytest.mark.parametrize("period", [2, 3, 4, 6])
@pytest.mark.parametrize("first", range(6))
def test_calls_of_several_kinds_in_turn(ways: list[Way], period: int, first: int) -> None:
    """Every so-manieth call takes long in any way; the others are faster without frames."""
    trial = FrameTrial(ways)
    for number in range(first, first + 60):
        if not trial.is_over:
            short = 100.0 if trial.way is Way.FRAMES else 7.0
            is_long = number % period == 0
            trial.note(400.0 if is_long else short, trial.way, compiled=False)
    assert trial.is_over
    assert trial.way is not Way.FRAMES or period == 2


def test_one_slow_call_decides_nothing() -> None:
    trial = FrameTrial(WAYS)
    for number in range(40):
        if not trial.is_over:
            slow = 100.0 if number in (7, 11, 12) else 0.0
            seconds = slow + (1.0 if trial.way is Way.FRAMES else 2.0)
            trial.note(seconds, trial.way, compiled=False)
    assert trial.is_over
    assert trial.way is Way.FRAMES


def test_code_that_is_compiled_again_and_again_is_not_timed_for_ever() -> None:
    trial = FrameTrial(WAYS)
    for number in range(150):
        if not trial.is_over:
            trial.note(1.0, trial.way, compiled=number % 3 == 0)
    assert trial.is_over
    assert trial.way is Way.FRAMES


@pytest.mark.parametrize("ways", [WAYS, [*Way]])
@pytest.mark.parametrize("every", [1, 3])
def test_code_that_takes_long_to_compile_again_and_again_runs_eagerly(
    ways: list[Way], every: int
) -> None:
    trial = FrameTrial(ways)
    ran = []
    for number in range(150):
        ran.append(trial.way)
        if not trial.is_over:
            compiles = trial.way is Way.FRAMES and number % every == 0
            seconds = {Way.FRAMES: 0.5, Way.PARTS: 1.0, Way.EAGER: 0.9}[trial.way]
            trial.note(100.0 if compiles else seconds, trial.way, compiled=compiles)
    assert trial.is_over
    assert trial.way is Way.EAGER
    assert ran.index(Way.EAGER) <= 26 * every


def test_calls_of_several_threads_are_counted_in_any_order() -> None:
    for all_by_frames in (False, True):
        trial = FrameTrial(WAYS)
        for _ in range(400):
            trial.note(1.0, Way.FRAMES, compiled=False)
            if not all_by_frames:
                trial.note(3.0, Way.EAGER, compiled=False)
        assert trial.is_over
        assert trial.way is Way.FRAMES


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

    def noted(trial: FrameTrial, _: float, way: Way, *, compiled: bool, **__: Any) -> None:
        if trial not in trials:
            trials.append(trial)
        is_slow = (way is Way.EAGER) is not eager_is_faster
        note(trial, 2.0 if is_slow else 1.0, way, compiled=compiled)

    monkeypatch.setattr(FrameTrial, "note", noted)
    hooks: list[frames.FrameHook] = []
    init = frames.FrameHook.__init__

    def made(hook: frames.FrameHook, *args: Any) -> None:
        init(hook, *args)
        hooks.append(hook)

    monkeypatch.setattr(frames.FrameHook, "__init__", made)
    torch.manual_seed(0)
    fast = hostjit.compile(by_frames)
    with torch.no_grad():
        for _ in range(60):
            x = torch.randn(3)
            assert_close(fast(x), by_frames(x))
    decided = [trial for trial in trials if trial.is_over]
    assert decided
    expected = Way.EAGER if eager_is_faster else Way.FRAMES
    assert all(trial.way is expected for trial in decided)
    for hook in hooks:
        if hook._trial in decided:
            assert hook.settled is hook._calls[expected]
    (route,) = {specialization.describe()["route"] for specialization in fast.specializations}
    assert route.instead is None
    assert (route.callback is None) is eager_is_faster


@pytest.mark.filterwarnings("ignore:hostjit")
def test_results_with_gradients() -> None:
    torch.manual_seed(0)
    fast = hostjit.compile(by_frames)
    for _ in range(30):
        x = torch.randn(3, requires_grad=True)
        twin = x.detach().clone().requires_grad_()
        fast(x).sum().backward()
        by_frames(twin).sum().backward()
        assert_close(x.grad, twin.grad)


def test_calls_of_frames() -> None:
    """What is called, what it is given, what follows an error, and what is counted."""
    recorded: list[int] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        _C.note_compiled_frame()
        if "raises" in kwargs:
            raise ValueError(kwargs["raises"])
        return "run", args, kwargs

    def target(*args: Any, **kwargs: Any) -> Any:
        return "target", args, kwargs

    def record() -> None:
        recorded.append(_C.num_compiled_frames())

    call = _C.FrameCall(run, target, None, record)
    before = _C.num_compiled_frames()
    assert call(1, b=2) == ("run", (1,), {"b": 2})
    with pytest.raises(ValueError, match="it does"):
        call(raises="it does")
    assert recorded == [before + 1, before + 2]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        assert call(1) == ("target", (1,), {})
    with torch.autograd.forward_ad.dual_level():
        assert call(1) == ("target", (1,), {})
    call.instead = target
    assert call(2) == ("target", (2,), {})
    assert call.instead is target

    class Settles:
        settled: Any = None

        def __call__(self, *args: Any) -> Any:
            self.settled = _C.FrameCall(target, target, None, record)
            return "once", args

    call.instead = Settles()
    assert call(2) == ("once", (2,))
    assert call.instead is None
    assert call(2) == ("target", (2,), {})
    call.instead = target
    call.become(_C.FrameCall(target, target, None, record))
    assert call.instead is None
    assert call(3) == ("target", (3,), {})
    with pytest.raises(TypeError, match="FrameCall"):
        call.become(target)  # type: ignore[arg-type]


def test_frames_are_left_until_the_outermost_call_returns() -> None:
    def nothing() -> None: ...

    def inner() -> bool:
        _C.leave_frames()
        return _C.frames_are_left()

    def outer() -> tuple[bool, bool]:
        return _C.FrameCall(inner, inner, None, nothing)(), _C.frames_are_left()

    _C.leave_frames()
    assert not _C.frames_are_left()  # no call runs
    assert _C.FrameCall(outer, outer, None, nothing)() == (True, True)
    assert not _C.frames_are_left()
