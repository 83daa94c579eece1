# SPDX-License-Identifier: Apache-2.0
"""Triton's own launches inside a recorded call: launched by Triton, recorded as hostjit's operator.

What Triton found at this launch holds at each replay: the configuration, and what it found of
numbers, which are compared. Of addresses of inputs it is compared whether 16 divides them; memory
that the program makes begins where it does. What may differ nevertheless is left unassumed, by
another variant of the kernel.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops import triton_kernel_wrap
from torch._library.triton import set_wrap_triton_enabled
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from hostjit.capturing.traced_graph import storage_of
from hostjit.launching.launch_operator import LAUNCH
from hostjit.launching.triton_kernels import TritonLaunch, launch_of
from hostjit.recording.graph.inputs import Bound, Leaf
from hostjit.recording.graph.recorder import Recorder
from hostjit.recording.reach.state import State
from hostjit.recording.triton.hooks import listen, stop

__all__ = ["RecordedLaunches"]

aten = torch.ops.aten

_written: dict[str, tuple[str, ...]] = {}  # by Triton's hash of a kernel


class RecordedLaunches:
    """While entered, the launches of Triton that a recorder would see are recorded.

    Attributes:
        tuned: Triton measured configurations of a kernel, which no later call does.
        aligned: leaves of the arguments, and other tensors, whose addresses 16 has to divide.
    """

    def __init__(self, recorder: Recorder, state: State) -> None:
        self.tuned = False
        self.aligned: list[int | torch.Tensor] = []
        self._recorder = recorder
        self._state = state
        self._contexts = contextlib.ExitStack()

    def __enter__(self) -> RecordedLaunches:
        listen(self._recorder, self)
        # Kernels in `torch.library.wrap_triton` are called as such.
        self._contexts.enter_context(set_wrap_triton_enabled(False))
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()
        stop(self._recorder)

    def measure(self, measured: Callable[[], Any]) -> Any:
        """Have Triton measure a configuration."""
        self.tuned = True
        with _unseen():
            return measured()

    def launch(
        self,
        run: Callable[..., Any],
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        *,
        warmup: bool,
    ) -> Any:
        """Launch a kernel by Triton's own `run`, and record it."""
        names = function.signature.parameters
        try:
            bound = function.signature.bind(
                *args, **{name: value for name, value in kwargs.items() if name in names}
            )
        except TypeError:
            bound = None  # Triton says so
        if warmup or bound is None or self.tuned or self._recorder.problem:
            with _unseen():
                return run(function, *args, grid=grid, warmup=warmup, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        sizes = grid(dict(given)) if callable(grid) else grid
        with contextlib.suppress(TypeError):  # Triton says so
            sizes = tuple(map(operator.index, sizes))
        try:
            with _unseen():
                compiled = run(function, *args, grid=sizes, warmup=False, **kwargs)
        except Exception:
            # If the code handles it, what it does then depends on the device.
            self._recorder.refuse("a launch of Triton raises")
            raise

        def variant(unaligned: frozenset[str]) -> Any:
            """Compile for addresses that 16 need not divide."""
            moved = {name: _Elsewhere(given[name]) for name in unaligned}
            first = [moved.get(name, x) for name, x in zip(names, args, strict=False)]
            others = {name: moved.get(name, x) for name, x in kwargs.items()}
            return run(function, *first, grid=None, warmup=True, **others)

        self._record(function, compiled, given, sizes, variant)
        return compiled

    def _record(
        self,
        function: Any,
        compiled: Any,
        given: Mapping[str, Any],
        grid: Sequence[Any],
        variant: Callable[[frozenset[str]], Any],
    ) -> None:
        what = f"'{function.__name__}' of Triton"
        try:
            with _unseen():
                problem = _obstacle(function, compiled, given)
                launch = None if problem else self._any_launch(function, compiled, given, variant)
            if launch is not None:
                self._note(launch, given, grid)
        except Exception as error:
            problem = f"can't be launched by hostjit: {error}"
        if problem:
            self._recorder.refuse(f"kernel {what} {problem}")

    def _any_launch(
        self,
        function: Any,
        compiled: Any,
        given: Mapping[str, Any],
        variant: Callable[[frozenset[str]], Any],
    ) -> TritonLaunch:
        """Return the kernel for what holds at each replay."""
        tensors = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
        for tensor in tensors.values():
            self._recorder.node_of(tensor)  # which may be an input
        assumed = {position for (position, *_), found in compiled.src.attrs.items() if found}
        unaligned = frozenset(
            name
            for position, name in enumerate(compiled.src.signature)
            if position in assumed and name in tensors and not self._is_aligned(tensors[name])
        )
        if unaligned:
            compiled = variant(unaligned)
        for (name, _), (_, variables) in function.used_global_vals.items():
            self._state.add_global(variables, name)
        return launch_of(compiled, compiled.src.signature, _written_by(function, compiled, given))

    def _is_aligned(self, tensor: torch.Tensor) -> bool:
        """Whether 16 divides an address at each replay, as it does now."""
        storage = storage_of(tensor)
        inputs = [x for x in self._recorder.sources if storage_of(x.tensor) == storage]
        if not inputs:
            return tensor.storage_offset() * tensor.element_size() % 16 == 0
        known: list[int | torch.Tensor] = []
        for source in inputs:
            if not isinstance(source, (Leaf, Bound)) or source.tensor.data_ptr() % 16 != 0:
                return False
            known.append(source.index if isinstance(source, Leaf) else source.tensor)
        self.aligned += [x for x in known if not any(x is other for other in self.aligned)]
        return True

    def _note(self, launch: TritonLaunch, given: Mapping[str, Any], grid: Sequence[Any]) -> None:
        """Add a launch that has taken place to the graph."""
        operands = launch.operands(given, grid)
        written = {id(tensor) for tensor in operands[3]}

        def node_of(tensor: torch.Tensor) -> torch.fx.Node:
            node = self._recorder.node_of(tensor)
            if node is None:
                raise TypeError("a tensor was made in a way which cannot be recorded")
            if not tensor.requires_grad or not torch.is_grad_enabled():
                return node
            if id(tensor) in written:
                raise TypeError("it writes a tensor that requires a gradient")
            return self._recorder.call(aten.detach.default, (node,), {})

        with _unseen():
            nodes = pytree.tree_map_only(torch.Tensor, node_of, operands)
            self._recorder.call(LAUNCH, tuple(nodes), {})


class _Elsewhere:
    """A tensor as Triton asks for it, at an address that nothing divides."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype

    def data_ptr(self) -> int:
        return 1


def _obstacle(function: Any, compiled: Any, given: Mapping[str, Any]) -> str:
    """Say what a launch does that a replay would not; "" for nothing."""
    from triton import knobs
    from triton.runtime import driver

    if function.pre_run_hooks:
        return "has hooks that run ahead of it"
    for hooks in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        if hooks is not None and getattr(hooks, "calls", True):
            return "is launched with hooks"
    if compiled is None or "cubin" not in compiled.asm:
        return "is no cubin"
    for name, type_ in compiled.src.signature.items():
        value = given[name]
        if "tensordesc" in str(type_) or "nvTmaDesc" in str(type_):
            return f"takes a TMA descriptor of the host, argument '{name}'"
        if type_ != "constexpr" and not isinstance(value, (torch.Tensor, int, float)):
            return f"takes a {type(value).__qualname__}, argument '{name}'"
    tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
    if not tensors:
        return "takes no tensor"
    device = driver.active.get_current_device()
    for tensor in tensors:
        if tensor.device != torch.device("cuda", device):
            return f"is launched on cuda:{device} with a tensor on {tensor.device}"
        if tensor.is_conj() or tensor.is_neg():
            return "takes a tensor that is conjugated or negated lazily"
    return ""


def _written_by(function: Any, compiled: Any, given: Mapping[str, Any]) -> tuple[str, ...]:
    """The tensors that a kernel writes, as PyTorch finds in Triton's IR; all if it can't tell."""
    if compiled.hash not in _written:
        table = triton_kernel_wrap.kernel_side_table
        kernel, constants = table.add_kernel(function), table.add_constant_args({})
        names = triton_kernel_wrap.get_mutated_tensors(kernel, constants, dict(given), {})
        _written[compiled.hash] = tuple(names)
    return _written[compiled.hash]


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Look away from what Triton does by itself."""
    profile = sys.getprofile()
    sys.setprofile(None)
    try:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            yield
    finally:
        sys.setprofile(profile)
