# SPDX-License-Identifier: Apache-2.0
"""Programs for CUDA without a device: traced with fake CUDA tensors, and lowered."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hostjit import _C
from hostjit.capturing.functional.trace import trace_functional
from hostjit.capturing.numbers.graph_sizes import find_sizes, over_tensors
from hostjit.lowering import cuda_launches
from hostjit.lowering.lower import lower
from hostjit.optimizers.rules import RULES
from hostjit.optimizers.step import Step

__all__ = ["cuda_graph", "cuda_program", "on_cuda", "ops_of", "optimizer_program"]


class _TracedError(Exception):
    """The call is known, and not run."""


def on_cuda(module: nn.Module) -> nn.Module:
    """Return the module with fake CUDA tensors; call it where arguments are made."""
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is None:
                    continue
                fake = torch.empty_strided(
                    tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda:0"
                )
                # With gradients they would look for CUDA.
                is_parameter = isinstance(tensor, nn.Parameter)
                tensors[name] = nn.Parameter(fake, requires_grad=False) if is_parameter else fake
    return module


def cuda_graph(
    target: Callable[..., Any], make: Callable[[], tuple[Any, ...]], open_dim: int | None = None
) -> Graph:
    """Return the functional graph of a call with the fake arguments that `make` makes.

    The size of a dim of all arguments may be left open.
    """
    found: list[tuple[GraphModule, list[Any]]] = []

    def stop(*_: Any) -> None:
        raise _TracedError

    def collect(module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        found.append((module, inputs))
        return stop

    torch._dynamo.reset()
    mode = FakeTensorMode(shape_env=None if open_dim is None else ShapeEnv())
    with mode, torch.no_grad():
        with torch.device("cuda:0"):
            arguments = make()
        if open_dim is not None:
            for argument in arguments:
                torch._dynamo.mark_dynamic(argument, open_dim)
        with contextlib.suppress(_TracedError):
            torch.compile(target, backend=collect, fullgraph=True, dynamic=False)(*arguments)
    ((module, inputs),) = found
    if open_dim is not None:
        places = find_sizes(module, [])
        module = over_tensors(module, {n: p for n, p in places.items() if p is not None}, [], [])
        inputs = [
            node.meta["example_value"] for node in module.graph.nodes if node.op == "placeholder"
        ]
        mode = inputs[0].fake_mode
    return trace_functional(module, inputs, mode).graph_module.graph


def cuda_program(
    target: Callable[..., Any], make: Callable[[], tuple[Any, ...]], open_dim: int | None = None
) -> _C.Program:
    """Return the program of a call with the fake arguments that `make` makes; it is verified.

    The text of its kernels is their source, not what a compiler made of it.
    """
    with mock.patch.object(cuda_launches, "compile_ptx", lambda source, arch: source):
        program = lower(cuda_graph(target, make, open_dim), "program")
    program.verify()
    return program


def ops_of(target: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> list[str]:
    """Return the ops of a program, in order: of launches the kernel, of calls the operator.

    Memory and views are left out, and the digests in names of kernels.
    """
    found: list[str] = []
    for op in cuda_program(target, make).ops:
        if op.name == "launch_kernel":
            found.append(re.sub(r"_[0-9a-f]{8}", "", op.kernel))
        elif op.name == "aten_call":
            found.append(op.target)
        elif op.name not in ("allocate", "view"):
            found.append(op.name)
    return found


def optimizer_program(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    shapes: Sequence[tuple[int, ...]],
    *,
    step_device: str = "cpu",
) -> _C.Program:
    """Return the program of a step on fake CUDA parameters of these shapes; it is verified.

    State of the names that the rule of the optimizer knows is like the parameter; `step` is on
    `step_device`.
    """
    mode = FakeTensorMode()
    with mode:
        params = [
            nn.Parameter(torch.empty(shape, device="cuda:0"), requires_grad=False)
            for shape in shapes
        ]
        optimizer = make(params)
        rule = RULES[type(optimizer)]
        for group in optimizer.param_groups:
            for param in group["params"]:
                param.grad = torch.empty_like(param)
                optimizer.state[param] = {
                    name: torch.empty((), device=step_device)
                    if name in rule.counters
                    else torch.empty_like(param)
                    for name in rule.state(group)
                }
        step = Step(optimizer, rule)
        module = step.graph()
        for node in module.graph.find_nodes(op="call_method", target="copy_"):
            # The method looks for CUDA.
            node.op, node.target = "call_function", torch.ops.aten.copy_.default
        module.recompile()
    graph = trace_functional(module, step.examples, mode).graph_module.graph
    with mock.patch.object(cuda_launches, "compile_ptx", lambda source, arch: source):
        program = lower(graph, "step")
    program.verify()
    return program
