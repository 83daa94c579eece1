# SPDX-License-Identifier: Apache-2.0
"""The ways of compiling a case, each compared with eager, call by call."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from cases import ModelCase, ProgramCase
from outcome import Outcome, leaves, microseconds
from torch._dynamo.utils import counters

import hostjit

Compiler = Callable[[Any], Any]


def as_backend(target: Any) -> Any:
    return torch.compile(target, backend="hostjit")


def forward(case: ModelCase, compiler: Compiler, outcome: Outcome) -> None:
    """Run inference at three sizes, twice."""
    model = case.make().eval()
    fast = compiler(model)
    batches = [case.inputs(*size) for size in case.sizes]
    with torch.no_grad():
        for number, inputs in enumerate(batches * 2):
            torch.manual_seed(number)
            expected = model(**copy.deepcopy(inputs))
            torch.manual_seed(number)
            found = _timed(outcome, lambda given: fast(**given), copy.deepcopy(inputs))
            outcome.compare(f"call {number}", found, expected)
        outcome.programs = _programs(fast)
        outcome.microseconds = microseconds(lambda: fast(**batches[-1]))
        outcome.eager_microseconds = microseconds(lambda: model(**batches[-1]))


def train(case: ModelCase, compiler: Compiler, outcome: Outcome) -> None:
    """Take steps of AdamW at three sizes, twice; each begins with the state of eager's."""
    models = [case.make().train()]
    models.append(copy.deepcopy(models[0]))
    # AdamW divides by the size of a gradient; eps keeps the rounding of the smallest ones small.
    optimizers = [torch.optim.AdamW(model.parameters(), eps=1e-4) for model in models]
    losses = [_loss_of(model) for model in models]
    updates = [optimizer.step for optimizer in optimizers]
    if compiler is hostjit.compile:
        losses[1], updates[1] = compiler(losses[1]), compiler(updates[1])
    else:
        losses[1] = _loss_of(compiler(models[1]))

    def step(which: int, inputs: dict[str, Any]) -> Any:
        optimizers[which].zero_grad()
        loss = losses[which](**inputs)
        loss.backward()
        gradients = {name: p.grad for name, p in models[which].named_parameters()}
        updates[which]()
        return loss.detach(), {k: g for k, g in gradients.items() if g is not None}

    batches = [_with_labels(case, case.inputs(*size)) for size in case.sizes]
    for number, inputs in enumerate(batches * 2):
        torch.manual_seed(number)
        expected = step(0, inputs)
        torch.manual_seed(number)
        found = _timed(outcome, lambda given: step(1, given), inputs)
        outcome.compare(f"step {number}", found, expected)
        outcome.compare(f"state {number}", *(dict(m.state_dict()) for m in reversed(models)))
        models[1].load_state_dict(models[0].state_dict())
    outcome.programs = _programs(losses[1])
    outcome.microseconds = microseconds(lambda: step(1, batches[-1]))
    outcome.eager_microseconds = microseconds(lambda: step(0, batches[-1]))


def generate(case: ModelCase, compiler: Compiler, outcome: Outcome) -> None:
    """Generate tokens, with a static cache."""
    _generate(case, compiler, outcome, cache_implementation="static")


def generate_with_growing_cache(case: ModelCase, compiler: Compiler, outcome: Outcome) -> None:
    """Generate tokens, with the cache that is the default."""
    _generate(case, compiler, outcome)


def _generate(case: ModelCase, compiler: Compiler, outcome: Outcome, **cache: str) -> None:
    model = case.make().eval()
    prompt = torch.randint(3, 128, (2, 6))
    settings: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    settings.update(eos_token_id=None, **cache)

    def run() -> Any:
        return model.generate(prompt, **settings)

    expected = run()
    outcome.eager_microseconds = microseconds(run)
    model.forward = compiler(model.forward)
    for _ in range(4):
        outcome.compare("tokens", _timed(outcome, lambda _: run(), None), expected)
    outcome.programs = _programs(model.forward)
    outcome.microseconds = microseconds(run)


def run_program(case: ProgramCase, compiler: Compiler, outcome: Outcome) -> None:
    """Make calls one after the other, which may change state."""
    made = []
    for compile in (lambda function: function, compiler):
        torch.manual_seed(0)
        made.append(case.make(compile))
    (eager, eager_state), (fast, fast_state) = made
    for number in range(case.steps):
        inputs = case.inputs(number)
        torch.manual_seed(number)
        expected = eager(*copy.deepcopy(inputs))
        torch.manual_seed(number)
        found = _timed(outcome, lambda given: fast(*given), copy.deepcopy(inputs))
        outcome.compare(f"call {number}", found, expected)
        outcome.compare(f"state {number}", fast_state(), eager_state())
    outcome.programs = _programs(fast)
    inputs = case.inputs(0)
    outcome.microseconds = microseconds(lambda: fast(*inputs))
    outcome.eager_microseconds = microseconds(lambda: eager(*inputs))


def _timed(outcome: Outcome, call: Callable[[Any], Any], given: Any) -> Any:
    begin = time.process_time()
    result = call(given)
    outcome.first_calls.append(round(time.process_time() - begin, 2))
    return result


def _programs(fast: Any) -> int | None:
    if isinstance(fast, hostjit._C.CompiledFunction):
        return len(fast.specializations)
    return counters["stats"].get("unique_graphs")


def _with_labels(case: ModelCase, inputs: dict[str, Any]) -> dict[str, Any]:
    if not case.labels:
        return inputs
    predicted = inputs["decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"]
    return {**inputs, "labels": predicted.clone()}


def _loss_of(model: Any) -> Callable[..., torch.Tensor]:
    """The model's own loss, or the squares of all that it returns."""

    def loss(**inputs: Any) -> Any:
        result = model(**inputs)
        own = getattr(result, "loss", None)
        if own is not None and own.requires_grad:
            return own.sum()
        found = [value for _, value in leaves(result) if isinstance(value, torch.Tensor)]
        return sum(value.float().square().mean() for value in found if value.requires_grad)

    return loss


Way = tuple[Callable[[Any, Compiler, Outcome], None], Compiler]
MODEL_WAYS: dict[str, Way] = {
    "compile": (forward, hostjit.compile),
    "capture": (forward, hostjit.capture),
    "torch.compile": (forward, as_backend),
    "train": (train, hostjit.compile),
    "train with torch.compile": (train, as_backend),
    "generate": (generate, as_backend),
    "generate with a growing cache": (generate_with_growing_cache, as_backend),
    "generate by compile": (generate, hostjit.compile),
    "generate by compile with a growing cache": (generate_with_growing_cache, hostjit.compile),
}
PROGRAM_WAYS: dict[str, Way] = {
    "compile": (run_program, hostjit.compile),
    "capture": (run_program, hostjit.capture),
    "torch.compile": (run_program, as_backend),
}
