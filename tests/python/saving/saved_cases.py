# SPDX-License-Identifier: Apache-2.0
"""Callables and calls that a saved file has to answer as the process that saved it does."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import checkpoint

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Pair(collections.namedtuple("Pair", ["left", "right"])):
    __slots__ = ()


@dataclasses.dataclass
class State:
    position: Tensor
    steps: int


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


CLASSES = [Pair, State, Mode]


@dataclasses.dataclass
class Case:
    """A callable, the calls to make of it, and what to make them under.

    `gradients_of`: the results' sum is differentiated, and gradients of parameters and arguments
    are part of what is compared.
    `recorded`: by `hostjit.capture`. Parameters and their gradients after the calls are compared.
    """

    target: Any
    calls: Sequence[Call]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    modes: Callable[[], contextlib.AbstractContextManager[Any]] = torch.no_grad
    gradients: bool = False
    recorded: bool = False


def call(*args: Any, **kwargs: Any) -> Call:
    return args, kwargs


def policy() -> Case:
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    return Case(model, [call(torch.randn(1, 6)), call(torch.randn(4, 6))], {"dynamic": False})


def containers() -> Case:
    def function(
        x: Tensor, table: dict[str, Any], *, scale: float, flag: bool, name: str, rest: Any
    ) -> Any:
        y = x * scale + table["a"][0] if flag else x
        return {"y": [y, (y + 1, None)], "name": name, "shape": (y.shape, y.dtype), "rest": rest}

    def calls(scale: float) -> Call:
        table = {"a": [torch.randn(3), 5], "b": (torch.ones(1), "text", b"bytes", 1 + 2j)}
        return call(torch.randn(2, 3), table, scale=scale, flag=True, name="n", rest=slice(0, 3))

    return Case(function, [calls(2.0), calls(float("inf"))], {"dynamic": False})


def classes() -> Case:
    def function(pair: Pair, mode: Mode, ordered: Any) -> Any:
        total = pair.left + pair.right * (2 if mode is Mode.FAST else 3)
        return State(total, 3), Pair(total, ordered["x"]), torch.max(total, 0), Mode.SLOW

    ordered = collections.OrderedDict(x=torch.ones(2))
    calls = [
        call(Pair(torch.randn(2, 2), torch.randn(2, 2)), mode, ordered)
        for mode in (Mode.FAST, Mode.SLOW)
    ]
    return Case(function, calls)


def batch_norm() -> Case:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    return Case(model, [call(torch.randn(8, 4)), call(torch.randn(8, 4))])


def writes_inputs() -> Case:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    return Case(function, [call(torch.randn(3), torch.randn(3))])


def aliases() -> Case:
    weight = nn.Parameter(torch.randn(3))

    def function(x: Tensor, y: Tensor) -> Any:
        return x, weight, y.view(-1), x[1:], weight + x

    return Case(function, [call(torch.randn(3), torch.randn(2, 2))])


def same_objects() -> Case:
    weight = torch.randn(3)

    def function(x: Tensor, y: Tensor) -> Tensor:
        return x + y * 2 if x is y else x - y + weight

    x = torch.randn(3)
    return Case(function, [call(x, x), call(x, torch.randn(3))])


def any_shape() -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2), nn.Softmax(-1))
    calls = [call(torch.randn(n, 4)) for n in (3, 5, 17, 64)]
    return Case(model, calls, {"dynamic": True})


def guarded_sizes() -> Case:
    def function(x: Tensor) -> Tensor:
        rows = x.shape[0]
        return x.view(rows // 2, 2, -1).sum(1) if rows % 2 == 0 and rows > 2 else x * 3

    return Case(function, [call(torch.randn(n, 3)) for n in (4, 6, 5, 7)], {"dynamic": True})


def open_numbers() -> Case:
    def function(x: Tensor, count: int, factor: float) -> Tensor:
        return x * count + factor

    calls = [call(torch.randn(3), n, f) for n, f in ((3, 0.5), (4, 0.25), (9, -1.5))]
    return Case(function, calls)


def random_numbers() -> Case:
    def function(x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5) + torch.rand(4) + torch.randn_like(x)

    return Case(function, [call(torch.randn(4)), call(torch.randn(4))])


def reused_outputs() -> Case:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    calls = [call(torch.randn(2, 4)) for _ in range(2)]
    return Case(model, calls, {"reuse_outputs": True})


def training() -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))
    calls = [call(torch.randn(3, 4, requires_grad=True)) for _ in range(2)]
    return Case(model, calls, modes=contextlib.nullcontext, gradients=True)


def training_any_shape() -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    calls = [call(torch.randn(n, 4)) for n in (3, 5, 8)]
    return Case(model, calls, {"dynamic": True}, contextlib.nullcontext, gradients=True)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(self.weight)
        return x.sin()


def training_writes() -> Case:
    calls = [call(torch.randn(3)) for _ in range(2)]
    return Case(Scaled(), calls, modes=contextlib.nullcontext, gradients=True)


def transformer() -> Case:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    return Case(model, [call(torch.randn(2, 5, 16))])


def recurrent() -> Case:
    return Case(nn.LSTM(4, 6, batch_first=True), [call(torch.randn(2, 3, 4))])


def constants() -> Case:
    base = torch.randn(4, 4)
    views = [base[0], base[:, 1], base.t()]
    half = torch.randn(4).bfloat16()
    imaginary = torch.randn(4, dtype=torch.complex64)

    def function(x: Tensor) -> Any:
        table = torch.tensor([1.0, 2.0, 3.0, 4.0])
        return views[0] + views[1] + views[2] @ x + table, half * 2, imaginary * x, base

    return Case(function, [call(torch.randn(4))])


def tied() -> Case:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight
            self.scale = 3.0
            self.cache = torch.ones(4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x) * self.scale + self.cache)

    return Case(Tied(), [call(torch.tensor([1, 4, 2]))])


def inference_mode() -> Case:
    with torch.inference_mode():
        x = torch.randn(3)
    return Case(lambda x: x.exp() + 1, [call(x)], modes=torch.inference_mode)


def enters_inference_mode() -> Case:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    @torch.inference_mode()
    def act(x: Tensor) -> tuple[Tensor, Tensor]:
        y = model(x)
        return y, y[:1]

    return Case(act, [call(torch.randn(2, 3)), call(torch.randn(5, 3))])


def made_in_inference_mode() -> Case:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    return Case(model, [call(torch.randn(2, 3))], modes=torch.inference_mode)


def autocast() -> Case:
    def modes() -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast("cpu", torch.bfloat16))
        return stack

    return Case(nn.Linear(4, 4), [call(torch.randn(2, 4))], modes=modes)


@contextlib.contextmanager
def _deterministic_doubles() -> Any:
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def process_modes() -> Case:
    def function(x: Tensor) -> Tensor:
        return x + torch.ones(3) / 3

    return Case(function, [call(torch.randn(3))], modes=_deterministic_doubles)


def method() -> Case:
    class Agent:
        def __init__(self) -> None:
            self.model = nn.Linear(3, 2)
            self.gain = 0.5

        def act(self, x: Tensor) -> Tensor:
            return self.model(x) * self.gain

    return Case(Agent().act, [call(torch.randn(1, 3))])


def _training_case(kind: Any, **options: Any) -> Case:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.25), nn.Linear(8, 2))
    optimizer = kind(model.parameters(), lr=0.05, **options)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    calls = [call(torch.randn(3, 4), torch.randn(3, 2)) for _ in range(3)]
    return Case(step, calls, modes=contextlib.nullcontext, recorded=True)


def recorded_sgd() -> Case:
    return _training_case(torch.optim.SGD, momentum=0.9, nesterov=True)


def recorded_adamw() -> Case:
    return _training_case(torch.optim.AdamW, amsgrad=True)


def recorded_scaler() -> Case:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    calls = [call(torch.randn(3, 4) * (1e30 if turn == 3 else 1)) for turn in range(5)]
    return Case(step, calls, modes=contextlib.nullcontext, recorded=True)


def recorded_checkpoint_and_hooks() -> Case:
    first = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.25))
    last = nn.Linear(8, 2)
    last.register_full_backward_hook(lambda module, inner, outer: (inner[0] * 0.5,))
    first[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    last.register_forward_hook(lambda module, args, result: result.tanh())

    def step(x: Tensor) -> Tensor:
        first.zero_grad(), last.zero_grad()
        hidden = checkpoint.checkpoint(first, x, use_reentrant=False)
        loss = last(hidden).square().sum()
        loss.backward()
        return loss.detach()

    calls = [call(torch.randn(3, 4)) for _ in range(3)]
    return Case(step, calls, modes=contextlib.nullcontext, recorded=True)


def recorded_accumulation() -> Case:
    model = nn.Linear(4, 2)

    def accumulate(x: Tensor) -> None:
        model(x).square().sum().backward()

    calls = [call(torch.randn(3, 4)) for _ in range(3)]
    return Case(accumulate, calls, modes=contextlib.nullcontext, recorded=True)


def recorded_branches() -> Case:
    weight = torch.randn(3)

    def branch(x: Tensor) -> Tensor:
        noisy = functional.dropout(weight, 0.5)
        return x * 2 + noisy if bool((x > 0).all()) else x * noisy.sum()

    x = torch.rand(3) + 0.1
    return Case(branch, [call(sign * x) for sign in (1, 1, -1, -1, 1, -1)], recorded=True)


def recorded_once() -> Case:
    weight = torch.randn(3, 3)

    def once(x: Tensor) -> Tensor:
        return x.mul_((weight @ weight).exp().sum())

    return Case(once, [call(torch.randn(3)) for _ in range(3)], {"prune": True}, recorded=True)


def recorded_static() -> Case:
    x = torch.randn(3)
    options = {"static_inputs": ["x"]}
    return Case(lambda x: x.add_(1) * 2, [call(x)] * 3, options, recorded=True)


def compiled_step() -> Case:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return Case(optimizer.step, [call()] * 3)


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case
    for case in (
        *(policy, containers, classes, batch_norm, writes_inputs, aliases, same_objects),
        *(any_shape, guarded_sizes, open_numbers, random_numbers, reused_outputs, training),
        *(
            training_any_shape,
            training_writes,
            transformer,
            recurrent,
            constants,
            tied,
            inference_mode,
            enters_inference_mode,
        ),
        *(made_in_inference_mode, autocast, process_modes, method),
        *(recorded_sgd, recorded_adamw, recorded_accumulation, recorded_branches, recorded_once),
        *(recorded_static, recorded_scaler, recorded_checkpoint_and_hooks, compiled_step),
    )
}
# Of these PyTorch's code imports Dynamo: that of optimizers, and of a mode.
IMPORTING = frozenset(
    {"compiled_step", "process_modes", "recorded_adamw", "recorded_scaler", "recorded_sgd"}
)


def make(name: str) -> Case:
    """Make a case, the same in every process."""
    torch.manual_seed(0)
    return CASES[name]()


def results_of(function: Any, case: Case, parameters: Sequence[Tensor]) -> list[Any]:
    """Make the calls, and return what they did: results, arguments afterwards, gradients."""
    torch.manual_seed(1)
    found: list[Any] = []
    for args, kwargs in case.calls:
        if case.gradients:
            for tensor in (*parameters, *args):
                tensor.grad = None
        with case.modes():
            result = function(*args, **kwargs)
        if case.gradients:
            result.square().sum().backward()
            tensors = [t for t in (*parameters, *args) if t.requires_grad and t.is_leaf]
            found.append([tensor.grad.clone() for tensor in tensors])
        found.append(copied(result))
        found.append(copied((args, kwargs)))
        if isinstance(result, (tuple, list)):
            found.append([any(item is arg for arg in args) for item in result])
    return found


def state_of(tensors: Mapping[str, Tensor]) -> list[Any]:
    """Return tensors and their gradients, by name."""
    return [[name, copied(tensor), copied(tensor.grad)] for name, tensor in sorted(tensors.items())]


def copied(value: Any) -> Any:
    """Return a value with copies of its tensors, and objects as what they are made of."""
    if isinstance(value, Tensor):
        return value.detach().clone() if not value.is_inference() else value.clone()
    if isinstance(value, State):
        return ["State", copied(value.position), value.steps]
    if isinstance(value, dict):
        return [type(value).__name__, [(key, copied(item)) for key, item in value.items()]]
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, [copied(item) for item in value]]
    return repr(value)


def same(found: Any, expected: Any, *, exactly: bool = True) -> bool:
    """Compare what `results_of` returned."""
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        facts = (found.dtype, found.shape, found.stride())
        if facts != (expected.dtype, expected.shape, expected.stride()):
            return False
        if exactly:
            return torch.equal(found, expected)
        return torch.allclose(found, expected, rtol=1e-2, atol=1e-4, equal_nan=True)
    if isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(
            same(a, b, exactly=exactly) for a, b in zip(found, expected, strict=True)
        )
    return bool(found == expected)
