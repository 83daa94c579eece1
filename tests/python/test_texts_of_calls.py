# SPDX-License-Identifier: Apache-2.0
"""Functions that decide by texts, sets and names which no other call has: a service, say.

Such code has as many programs as it may, and runs as it is; what it calls is compiled.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import hostjit
from hostjit.parts.frame_trial import FrameTrial

COMPILERS: dict[str, Callable[[Any], Any]] = {
    "compile": hostjit.compile,
    "backend": lambda function: torch.compile(function, backend="hostjit"),
}
in_each_way = pytest.mark.parametrize("way", list(COMPILERS))
pytestmark = pytest.mark.filterwarnings("ignore:hostjit.*(runs in parts|keeps meeting)")
CALLS = 60


@pytest.fixture(autouse=True)
def calls_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls run by frames, whatever else this machine does."""
    monkeypatch.setattr(FrameTrial, "note", lambda *_, **__: None)


def waves(x: Tensor, count: float) -> Tensor:
    for _ in range(8):
        x = (x * 1.01).sin()
    return x * count


def by_length(x: Tensor, text: str) -> Tensor:
    return waves(x, len(text) + 0.5)


class Service:
    """Answers texts by a model, and counts them."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.vocabulary = {f"w{number}": number for number in range(20)}
        self.words = nn.Embedding(21, 8)
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid())
        self.answered = 0

    @torch.no_grad()
    def answer(self, text: str) -> dict[str, Any]:
        numbers = [self.vocabulary.get(word, 20) for word in text.lower().split()]
        found = self.layers(self.words(torch.tensor([numbers])).mean(1))
        self.answered += 1
        best = int(found.argmax())
        return {"text": text, "best": best, "score": found[0, best].item(), "of": self.answered}


class Named(nn.Module):
    """Takes a name beside a tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.Sigmoid())

    def forward(self, x: Tensor, name: str) -> tuple[Tensor, str]:
        return self.layers(x), name.upper()


@dataclasses.dataclass
class Request:
    """What a service is asked."""

    history: list[int]
    wanted: int
    excluded: frozenset[int] = frozenset()


class Recommender(nn.Module):
    """Scores items by those that were seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.items = nn.Embedding(20, 8)
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 20))
        self.asked = 0

    def forward(self, seen: Tensor) -> Tensor:
        return self.layers(self.items(seen).mean(0))

    @torch.no_grad()
    def answer(self, request: Request) -> list[int]:
        self.asked += 1
        if not request.history:
            return [0] * request.wanted
        scores = self(torch.tensor(request.history))
        scores[list(request.excluded)] = -1e9
        found: list[int] = scores.topk(request.wanted)[1].tolist()
        return found


def operators(call: Callable[[], Any]) -> set[str]:
    """Return the names of what PyTorch's dispatcher runs in a call."""
    with torch.autograd.profiler.profile() as profile:
        call()
    return {event.name for event in profile.function_events}


@in_each_way
def test_what_a_function_of_a_text_calls_is_compiled(way: str) -> None:
    torch._dynamo.reset()
    compiled = COMPILERS[way](by_length)
    x = torch.linspace(-1, 1, 12)
    for number in range(CALLS):
        text = "t" * (number % 7) + str(number)
        assert_close(compiled(x, text), by_length(x, text))
    assert "aten::sin" not in operators(lambda: compiled(x, "another one"))


@in_each_way
def test_programs_for_texts_that_come_again_are_kept(way: str) -> None:
    torch._dynamo.reset()
    compiled = COMPILERS[way](by_length)
    x = torch.linspace(-1, 1, 12)
    for number in range(CALLS):
        for text in ("train", f"step {number}", "test"):
            assert_close(compiled(x, text), by_length(x, text))
    assert "aten::sin" not in operators(lambda: compiled(x, "train"))
    if way == "compile":
        programs = [found.describe()["route"] is None for found in compiled.specializations]
        assert programs.count(True) == len(programs) - 1


@in_each_way
def test_a_method_that_answers_texts(way: str) -> None:
    torch._dynamo.reset()
    mine, eagers = Service(), Service()
    compiled = COMPILERS[way](mine.answer)
    for number in range(CALLS):
        text = " ".join(f"W{(number * step) % 23}" for step in range(1, 3 + number % 5))
        assert compiled(text) == pytest.approx(eagers.answer(text))
    if way == "compile":  # Dynamo leaves frames of `nn.Sequential` alone
        assert "aten::tanh" not in operators(lambda: compiled("w1 w2 unheard"))


def test_dynamo_advises_nothing() -> None:
    torch._dynamo.reset()
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler, logger = Kept(logging.WARNING), logging.getLogger("torch._dynamo")
    logger.addHandler(handler)
    try:
        service = Service()
        compiled = hostjit.compile(service.answer)
        for number in range(CALLS):
            compiled(f"w{number} w1")
    finally:
        logger.removeHandler(handler)
    assert not records


@in_each_way
def test_a_module_that_is_given_a_name(way: str) -> None:
    torch._dynamo.reset()
    module = Named()
    compiled = COMPILERS[way](module)
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    for number in range(CALLS):
        found, expected = (which(x, f"n{number}") for which in (compiled, module))
        assert_close(found[0], expected[0])
        assert found[1] == expected[1]
    found[0].sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_requests_that_bring_other_objects() -> None:
    mine, eagers = Recommender(), Recommender()
    compiled = hostjit.compile(mine.answer)
    for number in range(3 * CALLS):
        history = [(number * step) % 20 for step in range(number % 6)]
        request = Request(history, 2 + number % 3, frozenset({number % 7, 3}))
        assert compiled(request) == eagers.answer(request)
    request = Request([1, 2, 3], 3, frozenset({1}))
    assert "aten::tanh" not in operators(lambda: compiled(request))


def test_sets_that_differ_are_kept_by_nothing() -> None:
    def counting(x: Tensor, known: set[int]) -> Tensor:
        return waves(x, len(known) + 0.5) if 1 in known else x

    compiled = hostjit.compile(counting)
    x = torch.linspace(-1, 1, 12)
    sets = [{1, number} for number in range(CALLS)]
    for known in sets:
        assert_close(compiled(x, known), counting(x, known))
    assert len(compiled.specializations) < 16


class Decoder:
    """Picks a number at each step, as a greedy transducer does."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.encoder, self.cell = nn.LSTM(4, 6, batch_first=True), nn.GRUCell(6, 6)

    @torch.no_grad()
    def decode(self, x: Tensor, state: Any, y: Tensor) -> tuple[list[int], Any, Tensor]:
        found, state = self.encoder(x, state)
        picked = []
        for t in range(found.shape[1]):
            number = int((found[:, t] + y).argmax())
            if number == 0:
                continue
            picked.append(number)
            y = self.cell(found[:, t].tanh(), y)
        return picked, state, y


def decoder_of_variables() -> Callable[..., Any]:
    """Return a function that does the same by variables of the function around it."""
    kept = Decoder()
    encoder, cell = kept.encoder, kept.cell

    @torch.no_grad()
    def decode(x: Tensor, state: Any, y: Tensor) -> tuple[list[int], Any, Tensor]:
        found, state = encoder(x, state)
        picked = []
        for t in range(found.shape[1]):
            number = int((found[:, t] + y).argmax())
            if number == 0:
                continue
            picked.append(number)
            y = cell(found[:, t].tanh(), y)
        return picked, state, y

    return decode


@in_each_way
@pytest.mark.parametrize("make", [lambda: Decoder().decode, decoder_of_variables])
def test_recurrent_networks_ahead_of_a_loop_that_breaks(
    make: Callable[[], Callable[..., Any]], way: str
) -> None:
    decode = make()
    torch._dynamo.reset()
    compiled = COMPILERS[way](decode)
    mine = eagers = (None, torch.zeros(1, 6))
    for _ in range(20):
        x = torch.randn(1, 5, 4)
        found, expected = compiled(x, *mine), decode(x, *eagers)
        assert found[0] == expected[0]
        assert_close(found[1:], expected[1:])
        mine, eagers = found[1:], expected[1:]
    assert "aten::lstm" not in operators(lambda: compiled(x, *mine))
