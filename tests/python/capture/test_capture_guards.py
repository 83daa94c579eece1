# SPDX-License-Identifier: Apache-2.0
"""No change that could change a result goes unnoticed; unrelated changes invalidate nothing."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from watch_checker import WatchChecker, Watched

from hostjit.capturing.capture import capture

SCALE = 2.0
TABLE = torch.ones(3)
OPTIONS: dict[str, Any] = {"gain": 2.0, "unused": 0}
STEPS = [1.0, 2.0]
FLAGS = {"double"}
UNRELATED: Any = 0


class Settings:
    def __init__(self) -> None:
        self.bias = 0.5
        self.weight = torch.ones(3)
        self.unused = 1


SETTINGS = Settings()


def helper(x: torch.Tensor, factor: float = 3.0, *, shift: float = 1.0) -> torch.Tensor:
    return x * factor + shift


class Net(nn.Module):
    CONSTANT = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.register_buffer("offset", torch.ones(3))
        self.mode = "plain"
        self.factors = [1.0, 2.0]
        self.steps = 0

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.CONSTANT

    @property
    def scale(self) -> float:
        return 3.0

    def forward(self, x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        x = self.extra(self.linear(x)) + self.offset * self.scale
        if self.training:
            x = x + 1
        if self.mode == "plain":
            x = x * self.factors[1]
        return x + shift


@pytest.fixture
def restored() -> Iterator[None]:
    module = sys.modules[__name__]
    saved = dict(vars(module))
    classes = [(kind, dict(vars(kind))) for kind in (Net, nn.Linear, Settings)]
    options, steps, flags, settings = dict(OPTIONS), list(STEPS), set(FLAGS), dict(vars(SETTINGS))
    defaults, kwdefaults = helper.__defaults__, dict(helper.__kwdefaults__ or {})
    helper_code = helper.__code__
    yield
    for name in ("SCALE", "TABLE", "UNRELATED", "helper", "SETTINGS", "OPTIONS", "STEPS", "FLAGS"):
        setattr(module, name, saved[name])
    for kind, entries in classes:
        for name in set(vars(kind)) - set(entries):
            delattr(kind, name)
        for name, value in entries.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)
    OPTIONS.clear(), OPTIONS.update(options)
    STEPS[:] = steps
    FLAGS.clear(), FLAGS.update(flags)
    vars(SETTINGS).update(settings)
    helper.__defaults__, helper.__kwdefaults__ = defaults, kwdefaults
    helper.__code__ = helper_code
    if hasattr(len, "__self__"):
        module.__dict__.pop("len", None)


Change = Callable[[Net], object]


def replace_linear_with_scaled(net: Net) -> None:
    class Other(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    net.linear = Other(3, 3)


def set_default(net: Net) -> None:
    Net.forward.__defaults__ = (5.0,)


def patch_code(net: Net) -> None:
    Net.extra.__code__ = (lambda self, x: x * 7).__code__


def patch_instance_forward(net: Net) -> None:
    net.linear.forward = types.MethodType(lambda self, x: x, net.linear)  # type: ignore[method-assign]


NET_CHANGES: dict[str, Change] = {
    "training flag": lambda net: net.train(),
    "python attribute": lambda net: setattr(net, "mode", "other"),
    "list attribute item": lambda net: net.factors.__setitem__(1, 5.0),
    "list attribute length": lambda net: net.factors.append(3.0),
    "attribute hides method": lambda net: setattr(net, "extra", lambda x: x),
    "replaced submodule of another class": replace_linear_with_scaled,
    "submodule without bias": lambda net: setattr(net, "linear", nn.Linear(3, 3, bias=False)),
    "bias removed": lambda net: setattr(net.linear, "bias", None),
    "parameter of another dtype": lambda net: setattr(
        net.linear, "weight", nn.Parameter(torch.ones(3, 3, dtype=torch.float64))
    ),
    "block appended": lambda net: net.blocks.append(nn.Linear(3, 3)),
    "blocks swapped for fewer": lambda net: setattr(net, "blocks", net.blocks[:1]),
    "forward hook": lambda net: net.register_forward_hook(lambda m, a, r: r * 2),
    "forward pre hook on a child": lambda net: net.linear.register_forward_pre_hook(
        lambda m, a: (a[0] * 2,)
    ),
    "global hook": lambda net: nn.modules.module.register_module_forward_hook(lambda m, a, r: r),
    "class assigned": lambda net: setattr(net.linear, "__class__", nn.Bilinear),
    "instance forward": patch_instance_forward,
}


@pytest.mark.parametrize("name", NET_CHANGES)
def test_module_changes_are_noticed(name: str, restored: None) -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    assert watched.is_right()
    handle = NET_CHANGES[name](net)
    try:
        watched.assert_invalid()
    finally:
        if hasattr(handle, "remove"):
            handle.remove()


def setclass(name: str, value: Any, kind: type = Net) -> Change:
    return lambda net: setattr(kind, name, value)


CLASS_CHANGES: dict[str, Change] = {
    "forward of the class": setclass("forward", lambda self, x, shift=1.0: x),
    "forward of a library class": setclass("forward", lambda self, x: x, nn.Linear),
    "helper method": setclass("extra", lambda self, x: x),
    "class constant": setclass("CONSTANT", 9.0),
    "property": setclass("scale", property(lambda self: 1.0)),
    "__call__": setclass("__call__", lambda self, x: x),
    "__getattr__": setclass("__getattr__", lambda self, name: 1.0),
}


@pytest.mark.parametrize("name", CLASS_CHANGES)
def test_class_changes_are_noticed(name: str, restored: None) -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    CLASS_CHANGES[name](net)
    watched.assert_invalid()


def test_default_of_a_method_is_noticed() -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    saved = Net.forward.__defaults__
    try:
        set_default(net)
        watched.assert_invalid()
    finally:
        Net.forward.__defaults__ = saved


def test_code_of_a_method_is_noticed() -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    saved = Net.extra.__code__
    try:
        patch_code(net)
        watched.assert_invalid()
    finally:
        Net.extra.__code__ = saved


def test_replaced_tensors_are_bound_anew() -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    net.linear.weight = nn.Parameter(torch.randn(3, 3))
    net.offset = torch.randn(3)
    assert watched.checker.failed()
    watched.assert_still_valid()
    net.blocks[0] = nn.Linear(3, 3).eval()
    watched.assert_still_valid()


def test_data_changes_need_no_check() -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    net.load_state_dict(Net().state_dict())
    with torch.no_grad():
        net.linear.weight.data = torch.randn(3, 3)
    assert not watched.checker.failed()
    assert watched.is_right()


def test_unrelated_module_changes_keep_the_program() -> None:
    net = Net().eval()
    watched = Watched(net, torch.randn(3))
    net.steps += 1
    net.note = "unrelated"
    watched.assert_still_valid()
    Net.counter = 1  # type: ignore[attr-defined]
    try:
        watched.assert_still_valid()
    finally:
        del Net.counter  # type: ignore[attr-defined]


def uses_globals(x: torch.Tensor) -> torch.Tensor:
    x = helper(x) * SCALE + TABLE + SETTINGS.bias * SETTINGS.weight
    x = x * OPTIONS["gain"] + STEPS[1]
    if "double" in FLAGS:
        x = x * 2
    return F.relu(x) if len(STEPS) == 2 else x


def setglobal(name: str, value: Any) -> Callable[[], object]:
    return lambda: setattr(sys.modules[__name__], name, value)


def other_helper(x: torch.Tensor) -> torch.Tensor:
    return x


def patch_helper() -> None:
    helper.__code__ = (lambda x, factor, *, shift: x).__code__


GLOBAL_CHANGES: dict[str, Callable[[], object]] = {
    "number": setglobal("SCALE", 3.0),
    "negative zero": setglobal("SCALE", -2.0),
    "tensor of another shape": setglobal("TABLE", torch.ones(1, 3)),
    "object": setglobal("SETTINGS", types.SimpleNamespace(bias=0.5, weight=torch.ones(3))),
    "attribute": lambda: setattr(SETTINGS, "bias", 0.25),
    "tensor attribute": lambda: setattr(SETTINGS, "weight", torch.ones(1)),
    "dict item": lambda: OPTIONS.update(gain=3.0),
    "dict": setglobal("OPTIONS", {"gain": 4.0}),
    "list item": lambda: STEPS.__setitem__(1, 3.0),
    "list length": lambda: STEPS.append(3.0),
    "set": lambda: FLAGS.remove("double"),
    "function": setglobal("helper", other_helper),
    "default": lambda: setattr(helper, "__defaults__", (4.0,)),
    "keyword default": lambda: (helper.__kwdefaults__ or {}).update(shift=2.0),
    "code": patch_helper,
    "deleted": lambda: delattr(sys.modules[__name__], "SCALE"),
}


@pytest.mark.parametrize("name", GLOBAL_CHANGES)
def test_global_changes_are_noticed(name: str, restored: None) -> None:
    watched = Watched(uses_globals, torch.randn(3))
    assert watched.is_right()
    GLOBAL_CHANGES[name]()
    watched.assert_invalid()


def test_torch_functions_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(uses_globals, torch.randn(3))
    monkeypatch.setattr(F, "relu", torch.tanh)
    watched.assert_invalid()


def test_unrelated_globals_do_not_alarm(restored: None) -> None:
    watched = Watched(uses_globals, torch.randn(3))
    for value in range(3):
        setglobal("UNRELATED", value)()
    sys.modules[__name__].NEW_GLOBAL = 1  # type: ignore[attr-defined]
    OPTIONS["unused"] = 1
    SETTINGS.unused = 2
    assert not watched.checker.failed()
    assert watched.is_right()


def test_an_equal_global_keeps_the_program(restored: None) -> None:
    watched = Watched(uses_globals, torch.randn(3))
    setglobal("SCALE", float("2.0"))()
    setglobal("TABLE", torch.full((3,), 7.0))()
    watched.assert_still_valid()


def make_closure() -> tuple[Callable[..., torch.Tensor], dict[str, Callable[[], None]]]:
    factor, table, settings = 2.0, torch.ones(3), {"k": 1.0}

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * factor + table * settings["k"]

    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x) + 1

    def change_factor() -> None:
        nonlocal factor
        factor = 3.0

    def change_table() -> None:
        nonlocal table
        table = torch.ones(1, 3)

    def change_inner() -> None:
        nonlocal inner
        inner = torch.tanh  # type: ignore[assignment]

    def change_item() -> None:
        settings["k"] = 5.0

    return outer, {
        "factor": change_factor,
        "table": change_table,
        "inner": change_inner,
        "item": change_item,
    }


@pytest.mark.parametrize("name", ["factor", "table", "inner", "item"])
def test_closure_changes_are_noticed(name: str) -> None:
    function, changes = make_closure()
    watched = Watched(function, torch.randn(3))
    assert watched.is_right()
    changes[name]()
    watched.assert_invalid()


def test_an_object_argument_is_watched() -> None:
    settings = Settings()
    watched = Watched(lambda x, s: x * s.bias + s.weight, torch.randn(3), settings)
    settings.unused = 5
    assert not watched.checker.failed()
    settings.bias = 2.0
    watched.assert_invalid()


def test_a_module_argument_is_watched() -> None:
    net = nn.Dropout(0.0).eval()
    watched = Watched(lambda x, module: module(x) + 1, torch.randn(3), net)
    net.train()
    watched.assert_invalid()


def test_partial_and_bound_methods() -> None:
    net = Net().eval()
    watched = Watched(functools.partial(net, shift=2.0), torch.randn(3))
    net.mode = "other"
    watched.assert_invalid()
    watched = Watched(net.extra, torch.randn(3))
    net.extra = None  # type: ignore[assignment]  # unrelated: the bound method is held
    watched.assert_still_valid()


def test_slots_are_watched() -> None:
    class Slots:
        __slots__ = ("other", "value")

    slots = Slots()
    slots.value, slots.other = 2.0, 1.0
    watched = Watched(lambda x: x * slots.value, torch.randn(3))
    slots.other = 3.0
    watched.assert_still_valid()
    slots.value = 3.0
    watched.assert_invalid()


def test_python_attributes_of_a_tensor() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if hasattr(x, "marked") else x

    x = torch.randn(3)
    program = capture(function, (x,))
    assert program.guards.leaf_checks == {("unmarked", 0)}
    assert not program.guards.check_every_call
    x.other = True  # type: ignore[attr-defined]
    program = capture(function, (x,))
    assert program.guards.check_every_call
    x.marked = True  # type: ignore[attr-defined]
    assert not program.revalidate((x,), {})


def test_a_tied_parameter_untied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    model = Tied()
    watched = Watched(model, torch.randn(3))
    model.b.weight = nn.Parameter(torch.randn(3, 3))
    watched.assert_invalid()


def test_a_returned_parameter_replaced() -> None:
    model = nn.Linear(3, 3)
    x = torch.randn(3)
    with torch.no_grad():
        program = capture(lambda x: (x + 1, model.weight), (x,))
        checker = WatchChecker(program.guards.watches)
        model.weight = nn.Parameter(torch.randn(3, 3))
        assert checker.failed()
        if program.revalidate((x,), {}):
            assert program.run(x)[1] is model.weight


def test_a_capture_alarms_no_other_program() -> None:
    watched = Watched(Net().eval(), torch.randn(3))
    Watched(Net().eval(), torch.randn(3))
    assert not watched.checker.failed()


def test_global_state_is_part_of_the_full_check() -> None:
    x = torch.randn(3)
    with torch.no_grad():
        program = capture(torch.relu, (x,))
        assert program.revalidate((x,), {})
    assert not program.revalidate((x,), {})
