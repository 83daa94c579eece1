# SPDX-License-Identifier: Apache-2.0
"""One step of an optimizer as a graph, and where its inputs are found at each call."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Set
from typing import Any

import torch
from torch.fx.proxy import GraphAppendingTracer
from torch.optim import optimizer as torch_optimizer

from hostjit.capturing.graph_module import graph_module
from hostjit.capturing.guards.watches import MISSING
from hostjit.capturing.tensors import TensorFacts
from hostjit.optimizers.rules import Rule, Update

__all__ = ["Step", "has_original_step", "is_factor"]

_CPU = torch.device("cpu")
_FOLDER = os.path.dirname(os.path.abspath(torch.optim.__file__)) + os.sep
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GLOBAL_HOOKS = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")


class Step:
    """The step that an optimizer would now make.

    With `as_called`, `optimizer.step` itself must be what PyTorch made it. `factors` are those of
    the rule that have changed: those above 0 may have any other such value.

    Attributes:
        bindings: one for each input of the graph, as `_C.Specialization` takes them.
        examples: the tensors themselves.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        rule: Rule,
        as_called: bool = False,
        factors: Set[str] = frozenset(),
    ) -> None:
        self.bindings: list[Any] = []
        self.examples: list[torch.Tensor] = []
        self._optimizer = optimizer
        self._rule = rule
        self._as_called = as_called
        self._factors = factors

    def _updates(self) -> Iterator[tuple[dict[str, Any], torch.Tensor, torch.Tensor]]:
        for group in self._optimizer.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    yield group, param, param.grad

    def _state(self, group: dict[str, Any], param: torch.Tensor) -> list[tuple[str, Any]]:
        state = self._optimizer.state.get(param, {})
        return [(name, state.get(name)) for name in self._rule.state(group)]

    def _numbers(self, group: dict[str, Any]) -> list[str]:
        """Keys of a group that are read at each call."""
        return [*self._rule.numbers, *(key for key in self._factors if is_factor(group[key]))]

    def _constants(self, group: dict[str, Any]) -> list[str]:
        """Keys of a group that the graph depends on; what a schedule adds is not among them."""
        numbers = self._numbers(group)
        return [key for key in self._optimizer.defaults if key in group and key not in numbers]

    def is_unfinished(self) -> bool:
        """Tell whether there is nothing to do, or state that the optimizer has yet to make."""
        found = False
        for group, param, _ in self._updates():
            found = True
            if any(value is None for _, value in self._state(group, param)):
                return True
        return not found

    def obstacle(self, hooks: bool = True, scaled: bool = True) -> str:
        """Say why the step has to run eagerly; "" when it need not.

        `hooks`: those of the optimizer are in the way; `scaled`: so is what a scaler gives a fused
        step, which that unscales the gradients by, or does nothing.
        """
        found = [getattr(self._optimizer, name) for name in _HOOKS]
        found += [getattr(torch_optimizer, name) for name in _GLOBAL_HOOKS]
        if self._as_called and not has_original_step(self._optimizer):
            return "the optimizer's 'step' was replaced"
        if hooks and any(found):
            return "the optimizer has hooks"
        if "_init_group" in vars(self._optimizer):
            return "the optimizer has an '_init_group' of its own"
        is_scaled = any(hasattr(self._optimizer, name) for name in ("grad_scale", "found_inf"))
        is_fused = all(group.get("fused") for group in self._optimizer.param_groups)
        if is_scaled and (scaled or not is_fused):
            return "a scaler scales the step"
        device = next((param.device for _, param, _ in self._updates()), _CPU)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return "a CUDA graph is captured, for which its numbers are constants"
        for group, param, grad in self._updates():
            if group.get("differentiable") or group.get("capturable"):
                return "the optimizer is differentiable or capturable"
            if any(torch.is_tensor(group[key]) for key in self._constants(group)):
                return "a constant of the optimizer is a tensor"
            for name in self._rule.numbers:
                if not all(_is_number(value) for value in _as_tuple(group[name])):
                    return f"'{name}' is no float"
            state = self._state(group, param)
            counters = [value for name, value in state if name in self._rule.counters]
            tensors = [value for name, value in state if name not in self._rule.counters]
            is_plain = all(_is_plain(tensor, (device,)) for tensor in (param, grad, *tensors))
            if not (is_plain and all(_is_plain(value, (device, _CPU)) for value in counters)):
                return "a tensor is not a plain one on the CPU, or on one CUDA device"
            if not param.is_floating_point() or grad.dtype != param.dtype or grad.requires_grad:
                return "a gradient is complex, has another dtype or a graph"
        return ""

    def is_on_cuda(self) -> bool:
        """Tell whether it updates parameters on a CUDA device."""
        return any(param.device.type == "cuda" for _, param, _ in self._updates())

    def gradients(self) -> list[torch.Tensor]:
        """Return the gradients that it takes."""
        return [gradient for _, _, gradient in self._updates()]

    def signature(self) -> list[Any]:
        """Return what the graph depends on, to be compared."""
        groups = {id(group): index for index, group in enumerate(self._optimizer.param_groups)}
        return [
            [
                (key, group[key])
                for group in self._optimizer.param_groups
                for key in self._constants(group)
            ],
            [
                (
                    groups[id(group)],
                    TensorFacts.of(param),
                    TensorFacts.of(grad),
                    [TensorFacts.of(value) for _, value in self._state(group, param)],
                )
                for group, param, grad in self._updates()
            ],
        ]

    def graph(self) -> torch.fx.GraphModule:
        """Record the step, and fill `bindings` and `examples`."""
        graph = torch.fx.Graph()
        self._tracer = GraphAppendingTracer(graph)
        numbers = {
            id(group): {name: self._number(graph, group, name) for name in self._numbers(group)}
            for group in self._optimizer.param_groups
            if any(param.grad is not None for param in group["params"])
        }
        for group, param, grad in self._updates():
            self._rule.update(
                Update(
                    group=group,
                    param=self._input(graph, param, param),
                    grad=self._input(graph, ("gradient", param), grad),
                    state={
                        name: self._input(graph, value, value)
                        for name, value in self._state(group, param)
                    },
                    numbers=numbers[id(group)],
                    sizes=tuple(param.shape),
                    is_half=param.dtype in (torch.float16, torch.bfloat16),
                )
            )
        graph.output(())
        return graph_module(torch.nn.Module(), graph)

    def _number(self, graph: torch.fx.Graph, group: dict[str, Any], name: str) -> Any:
        value = group[name]
        if not isinstance(value, tuple):
            return self._float(graph, group, name, None, value)
        return tuple(
            self._float(graph, group, name, position, item) for position, item in enumerate(value)
        )

    def _float(
        self, graph: torch.fx.Graph, group: dict[str, Any], name: str, position: Any, value: Any
    ) -> Any:
        if isinstance(value, torch.Tensor):
            return self._input(graph, value, value)
        example = torch.tensor(value, dtype=torch.float64, device=_CPU)
        return self._input(graph, ("number", group, name, position), example)

    def _input(self, graph: torch.fx.Graph, binding: Any, example: torch.Tensor) -> Any:
        self.bindings.append(binding)
        self.examples.append(example)
        return torch.fx.Proxy(graph.placeholder(f"input_{len(self.bindings)}"), self._tracer)

    def condition(self) -> Callable[..., bool] | None:
        """Return what tells whether factors are still such, and that no CUDA graph is captured.

        None if there are no factors, and nothing on a CUDA device.
        """
        optimizer = self._optimizer
        found = [
            (index, key)
            for index, group in enumerate(optimizer.param_groups)
            for key in self._factors
            if is_factor(group[key])
        ]

        def holds(*_: Any) -> bool:
            groups = optimizer.param_groups
            return all(is_factor(groups[index][key]) for index, key in found)

        def holds_on_cuda(*_: Any) -> bool:
            return not torch.cuda.is_current_stream_capturing() and holds()

        if self.is_on_cuda():
            return holds_on_cuda
        return holds if found else None

    def watches(self) -> list[tuple[Any, ...]]:
        """Return what must stay for the bindings to be those of the optimizer's next step."""
        optimizer = self._optimizer
        attributes = ["param_groups", "state", *_HOOKS, *(["step"] if self._as_called else [])]
        entries = [
            _items(vars(optimizer), tuple(attributes), optimizer),
            ("type", type(optimizer)),
            ("list", optimizer.param_groups, tuple(optimizer.param_groups)),
            *(("dict", getattr(optimizer, name), None) for name in _HOOKS),
            *(("dict", getattr(torch_optimizer, name), None) for name in _GLOBAL_HOOKS),
        ]
        for group in optimizer.param_groups:
            # A number is read at each call; a tensor in its place is bound.
            bound = [name for name in self._rule.numbers if torch.is_tensor(group[name])]
            entries.append(_items(group, ("params", *self._constants(group), *bound), None))
            entries.append(("list", group["params"], tuple(group["params"])))
            entries.extend(("no_gradient", p) for p in group["params"] if p.grad is None)
        updated = list(self._updates())
        entries.append(_items(optimizer.state, tuple(param for _, param, _ in updated), None))
        for group, param, _ in updated:
            if names := tuple(name for name, _ in self._state(group, param)):
                entries.append(_items(optimizer.state[param], names, None))
        return entries


def has_original_step(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether `optimizer.step` is that of its class, or one that a schedule put around it."""
    step: Any = vars(optimizer).get("step")
    original: Any = type(optimizer).step
    if step is not None:
        if not getattr(step, "_wrapped_by_lr_sched", False):
            return False
        if step.__wrapped__ is not original:
            return False
    while original is not None:
        if not original.__code__.co_filename.startswith(_FOLDER):
            return False
        original = getattr(original, "__wrapped__", None)
    return True


def _items(mapping: dict[Any, Any], keys: tuple[Any, ...], owner: Any) -> tuple[Any, ...]:
    expected = tuple(mapping.get(key, MISSING) for key in keys)
    return ("dict_items", mapping, owner, keys, expected, MISSING)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() == 0 and _is_plain(value, (_CPU,)) and not value.requires_grad
    return type(value) is float


def is_factor(value: Any) -> bool:
    """Tell whether a number may be any other in a program: at 0 the step is another one."""
    return type(value) is float and value > 0


def _is_plain(tensor: Any, devices: Collection[torch.device]) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and tensor.device.type in ("cpu", "cuda")
        and tensor.device in devices
        and not tensor.is_inference()
    )
