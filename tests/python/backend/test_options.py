# SPDX-License-Identifier: Apache-2.0
"""What torch.compile's mode and options say to the backend, and how it is found by name."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._inductor
from entry_point import environment_with_entry_point
from torch._dynamo.testing import CompileCounterWithBackend

import hostjit
from hostjit.backend import compile_graph, dynamo_graph


def compile_and_call(**arguments: Any) -> Any:
    compiled = torch.compile(torch.sin, backend="hostjit", **arguments)
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x.sin())
    return compiled


@pytest.mark.parametrize("mode", [None, *torch._inductor.list_mode_options()])
def test_modes_are_accepted(mode: str | None) -> None:
    compile_and_call(mode=mode)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mode": "fastest"},
            "unknown mode 'fastest', expected 'default', 'lite', 'reduce-overhead',",
        ),
        (
            {"options": {"reuse": True}},
            "unknown option 'reuse', expected 'runtime', 'fallback', 'reuse_outputs', 'graphs', "
            "'streams' or 'kernels'",
        ),
        (
            {"options": {"runtime": "fast"}},
            "unknown runtime 'fast', expected 'jit' or 'evaluator'",
        ),
        ({"options": {"fallback": 1}}, "option 'fallback' is a bool, got 1"),
    ],
)
def test_what_is_unknown_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message) as raised:
        compile_and_call(**arguments)
    assert isinstance(raised.value.inner_exception, hostjit.Error)


def test_options_of_dynamo_are_left_to_it() -> None:
    compile_and_call(options={"guard_filter_fn": lambda guards: [True for _ in guards]})


def test_outputs_are_reused() -> None:
    compiled = torch.compile(torch.sin, backend="hostjit", options={"reuse_outputs": True})
    with torch.no_grad():
        assert compiled(torch.ones(3)) is compiled(torch.zeros(3))


def test_the_runtime_follows_the_knob() -> None:
    compiled = compile_and_call()
    with hostjit.runtime("evaluator"):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin())


def decides(x: torch.Tensor) -> Any:
    return torch._higher_order_ops.strict_mode(lambda x: x.sin(), (x,))


def test_what_cannot_be_lowered_runs_eagerly_with_one_warning() -> None:
    compiled = torch.compile(decides, backend="hostjit")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
            torch.testing.assert_close(compiled(x), decides(x))
    ours = [entry for entry in caught if "hostjit" in str(entry.message)]
    assert len(ours) == 1 and "runs eagerly" in str(ours[0].message)
    assert ours[0].filename == __file__


def test_what_autograd_cannot_split_runs_eagerly() -> None:
    x = torch.randn(3, requires_grad=True)
    broken = mock.patch("torch._dynamo.backends.common.aot_module_simplified", side_effect=KeyError)
    compiled = torch.compile(torch.sin, backend="hostjit")
    with broken, pytest.warns(UserWarning, match="runs eagerly: KeyError"):
        compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_without_fallback_it_is_an_error() -> None:
    compiled = torch.compile(decides, backend="hostjit", options={"fallback": False})
    with pytest.raises(hostjit.CaptureError):
        compiled(torch.ones(3))


def test_sizes_are_symbolic_for_dynamo_and_specialised_here() -> None:
    counter = CompileCounterWithBackend("hostjit")
    compiled = torch.compile(lambda x: x * x.shape[0], backend=counter, dynamic=True)
    for rows in (2, 3, 4, 3, 2):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), x * rows)
    assert counter.frame_count == 1


def test_recompilation_and_reset() -> None:
    counter = CompileCounterWithBackend("hostjit")
    compiled = torch.compile(torch.sin, backend=counter, dynamic=False)
    for x in (torch.ones(3), torch.ones(4), torch.ones(3).double(), torch.ones(3)):
        torch.testing.assert_close(compiled(x), x.sin())
    assert counter.frame_count == 3
    torch.compiler.reset()
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin())
    assert counter.frame_count == 4


def test_settings_of_dynamo_are_as_before() -> None:
    assert torch._dynamo.config.record_runtime_overhead
    timing = torch._dynamo.guards.profile_guard_manager
    compile_and_call()
    assert torch._dynamo.config.record_runtime_overhead
    assert torch._dynamo.guards.profile_guard_manager is timing
    with torch._dynamo.config.patch(record_runtime_overhead=False):
        torch.compiler.reset()
        compile_and_call()
        assert not torch._dynamo.config.record_runtime_overhead


def test_the_name_is_registered() -> None:
    assert "hostjit" in torch.compiler.list_backends()
    assert torch._dynamo.lookup_backend("hostjit") is compile_graph


def entry_points() -> list[metadata.EntryPoint]:
    found = metadata.entry_points(group="torch_dynamo_backends")
    return [entry for entry in found if entry.name == "hostjit"]


def test_the_entry_point_leads_to_the_backend() -> None:
    if not entry_points():
        pytest.skip("the installed metadata of hostjit has no entry point: install it again")
    assert [entry.load() for entry in entry_points()] == [compile_graph]


SCRIPT = """
import sys
import torch
assert "hostjit" not in sys.modules
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
x = torch.randn(2, 4)
with torch.no_grad():
    torch.testing.assert_close(torch.compile(model, backend="hostjit")(x), model(x))
assert "hostjit.backend.graph_compilation" in sys.modules
assert "torch._inductor.compile_fx" not in sys.modules
"""


def test_dynamo_finds_the_entry_point_by_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment_with_entry_point(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_program_that_names_another_backend_is_redirected() -> None:
    """TORCH_COMPILE_OVERRIDE_BACKENDS sets this at the start of a process."""
    with (
        torch._dynamo.config.patch(debug_backend_override=">=0:hostjit"),
        mock.patch.object(
            dynamo_graph, "compile_graph", wraps=dynamo_graph.compile_graph
        ) as compiled,
    ):
        torch.testing.assert_close(torch.compile(torch.sin)(torch.ones(3)), torch.ones(3).sin())
    assert compiled.call_count == 1
