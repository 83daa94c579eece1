# SPDX-License-Identifier: Apache-2.0
"""What Dynamo knows wrongly by itself is right through `torch.compile(..., backend="hostjit")`."""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import variables
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

# One call after the other changes what the function reads; it yields what each call answers.
Scenario = Callable[[Callable[[Any], Any]], Iterator[Any]]
X = torch.arange(3.0)


def numbers_in_shapes(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x, n: (x * 2, n in x.shape, 3 in (n, 1)))
    for n in (2, 3, 5, 3):
        yield fast(torch.ones(n), n)


@dataclasses.dataclass(unsafe_hash=True)
class Key:
    name: str


def equal_keys(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x, table: x * table[Key("a")] if Key("a") in table else x)
    for factor in (2.0, 3.0):
        yield fast(X, {Key("a"): factor})
    yield fast(X, {Key("b"): 2.0})


def kept_results(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    calls = []

    class Scale:
        factor = 2.0

    @functools.lru_cache
    def scale() -> Scale:
        calls.append(len(calls))
        return Scale()

    fast = compiled(lambda x: x * scale().factor)
    for _ in range(3):
        yield fast(X), len(calls)


def attributes_of_classes(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    class Counter:
        count = 0

        def step(self, x: Tensor) -> Tensor:
            type(self).count += 1
            return x * self.count

    counter = Counter()
    fast = compiled(counter.step)
    for _ in range(3):
        yield fast(X), Counter.count


def attributes_of_functions(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    def scale(x: Tensor) -> Tensor:
        return x * getattr(scale, "factor", 1.0)

    fast = compiled(scale)
    yield fast(X)
    scale.factor = 3.0  # type: ignore[attr-defined]
    yield fast(X)


def hidden_builtins(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    names: dict[str, Any] = {"__builtins__": __builtins__}
    code = compile("def f(x): return x * len('ab')", "f", "exec")
    exec(code, names)
    fast = compiled(names["f"])
    yield fast(X)
    names["len"] = lambda text: 7
    yield fast(X)


def functions_in_dicts(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    table: dict[str, Any] = {"act": torch.sin}
    fast = compiled(lambda x: table["act"](x))
    yield fast(X)
    table["act"] = torch.cos
    yield fast(X)


def keys_of_dicts(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    table: dict[str, float] = {"a": 1.0}
    fast = compiled(lambda x: (x * len([*table]), list(table), not table))
    yield fast(X)
    table["b"] = 2.0
    yield fast(X)
    table["a"] = table.pop("a")
    yield fast(X)
    table.clear()
    yield fast(X)


def methods_of_classes(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    class Act:
        gain = 2.0

        @property
        def offset(self) -> float:
            return 0.5

        @classmethod
        def shifted(cls, x: Tensor) -> Tensor:
            return x - 1

        def act(self, x: Tensor) -> Tensor:
            return self.shifted(x) * self.gain + self.offset

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.acts = [Later(), Later()]

        def scaled(self, x: Tensor) -> Tensor:
            return x + 1

        def forward(self, x: Tensor) -> Tensor:
            return sum((act.act(self.scaled(x)) for act in self.acts), x)

    class Later(Act):
        pass

    fast = compiled(Model())
    yield fast(X)
    Act.offset = property(lambda self: 0.25)  # type: ignore[method-assign, assignment]
    yield fast(X)
    Act.shifted = classmethod(lambda cls, x: x - 2)  # type: ignore[method-assign, assignment]
    yield fast(X)
    Act.act = lambda self, x: x - self.gain  # type: ignore[method-assign]
    yield fast(X)
    Later.gain = 5.0
    yield fast(X)
    Model.scaled = lambda self, x: x * 7  # type: ignore[method-assign]
    yield fast(X)
    Later.act = lambda self, x: x  # type: ignore[method-assign]
    yield fast(X)


def tensors_in_lists(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    yield compiled(lambda x: (x * 2, x in [x]))(X)


def bounded_deques(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    def keep(x: Tensor) -> tuple[int, int, Tensor]:
        kept = collections.deque([1, 2, 3], maxlen=3)
        kept.append(4)
        none = collections.deque([1], maxlen=0)
        none.append(4)
        return len(kept), len(none), x * kept[0]

    yield compiled(keep)(X)


def texts_of_bounded_deques(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x, kept: (x * 2, str(kept), f"{kept}"))
    for limit in (None, 2, 3):
        yield fast(X, collections.deque([1, 2], maxlen=limit))


def texts_of_objects(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    config = types.SimpleNamespace(rate=1.0)
    fast = compiled(lambda x: (x * 2, str(config), f"{config}"))
    yield fast(X)
    config.rate = 2.0
    yield fast(X)


def identities(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    default = (1000.5,)
    fast = compiled(lambda x, given: x * 2 if given is default else x)
    yield fast(X, default)
    yield fast(X, (float("1000.5"),))


def drawn_numbers(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x: (x.half() * random.random()).dtype)
    random.seed(0)
    for _ in range(3):
        yield fast(X)
    yield random.random()


def handled_errors(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    def factor(x: Tensor) -> Tensor:
        try:
            return torch.linalg.cholesky(x)
        except RuntimeError:
            return torch.zeros_like(x)

    fast = compiled(factor)
    yield fast(torch.eye(3))
    yield fast(-torch.eye(3))


def texts_of_numbers(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x, n: (x * 2, f"{n}", f"{n:03d}|{n / 3:.2f}"))
    for n in (2, 3, 5, 3):
        yield fast(X, n)
    fast = compiled(lambda x, n: (x * 2, f"{n} of {n:.1f}"))
    for number in (2.0, 0.0, 3.5, -0.0, 0.0, 2.0):
        yield fast(X, number)
    fast = compiled(lambda x: (x * 2, f"{x.shape[0]:03d}"))
    for n in (2, 3, 5, 3):
        yield fast(torch.ones(n))


def least_and_most(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x, n: (x * max(n, 2.5), max(n, 2.5), min(3, n)))
    for n in (2, 3, 4, 1.5, 3.5, 2.5, 7.0):
        yield fast(X, n)


def lengths_of_deques(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    fast = compiled(lambda x, n: (x * 2, list(collections.deque([n, 1, 2], maxlen=n))))
    for n in (2, 3, 0, 1):
        yield fast(X, n)


def hooks_of_modules(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Identity())
    fast = compiled(model)
    yield fast(X)
    handle = model[0].register_forward_hook(lambda module, args, result: result + 1)
    yield fast(X)
    handle.remove()
    yield fast(X)
    handle = model.register_forward_pre_hook(lambda module, args: (args[0] - 1,))
    yield fast(X)


def hooks_of_all_modules(compiled: Callable[[Any], Any]) -> Iterator[Any]:
    model = nn.Identity()
    fast = compiled(lambda x: model(x))  # a compiled module is one, too
    yield fast(X)
    for register, hook in (
        (register_module_forward_hook, lambda module, args, result: result + 1),
        (register_module_forward_pre_hook, lambda module, args: (args[0] * 2,)),
    ):
        handle = register(hook)
        yield fast(X)
        handle.remove()
        yield fast(X)


SCENARIOS: list[Scenario] = [
    *(numbers_in_shapes, equal_keys, kept_results, attributes_of_classes, attributes_of_functions),
    *(hidden_builtins, functions_in_dicts, keys_of_dicts, methods_of_classes, tensors_in_lists),
    *(bounded_deques, texts_of_bounded_deques, texts_of_objects, identities, drawn_numbers),
    *(handled_errors, texts_of_numbers, least_and_most, lengths_of_deques, hooks_of_modules),
    hooks_of_all_modules,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_answers_are_eagers(scenario: Scenario) -> None:
    expected = list(scenario(lambda function: function))
    torch.compiler.reset()
    found = list(scenario(lambda function: torch.compile(function, backend="hostjit")))
    assert len(found) == len(expected)
    for number, (mine, eager) in enumerate(zip(found, expected, strict=True)):
        for a, b in zip(tree_leaves(mine), tree_leaves(eager), strict=True):
            assert type(a) is type(b) and (
                torch.equal(a, b) if isinstance(a, Tensor) else a == b
            ), f"call {number}: {mine}, {eager} expected"


def test_dynamo_is_as_it_was_for_other_backends() -> None:
    def classes() -> dict[tuple[type, str], Any]:
        kinds = [kind for kind in vars(variables).values() if isinstance(kind, type)]
        return {(kind, name): value for kind in kinds for name, value in vars(kind).items()}

    torch.compile(torch.sin, backend="eager")(X)
    before = classes()
    torch.compiler.reset()
    torch.compile(torch.sin, backend="hostjit")(X)
    after = classes()
    assert [key for key in before if before[key] is not after.get(key)] == []
