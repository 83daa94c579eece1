# SPDX-License-Identifier: Apache-2.0
"""`hostjit.compile`: the one call that a user needs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, overload

import torch

from hostjit import _C
from hostjit.compiling.code_choices import CodeChoices
from hostjit.dynamo_import import import_compiler

__all__ = ["compile"]


@overload
def compile(
    target: None = None,
    *,
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    graphs: str | None = None,
    streams: int | None = None,
    kernels: str = "hostjit",
    dynamic: bool | None = None,
    dynamic_shapes: Any = None,
) -> Callable[[Any], _C.CompiledFunction]: ...
@overload
def compile(
    target: Any,
    *,
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    graphs: str | None = None,
    streams: int | None = None,
    kernels: str = "hostjit",
    dynamic: bool | None = None,
    dynamic_shapes: Any = None,
) -> _C.CompiledFunction: ...
def compile(
    target: Any = None,
    *,
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    graphs: str | None = None,
    streams: int | None = None,
    kernels: str = "hostjit",
    dynamic: bool | None = None,
    dynamic_shapes: Any = None,
) -> Any:
    """Compile a PyTorch callable, a FusionDefinition, a Host IR program or its text.

    Nothing happens until the first call; each new signature (structure, dtypes, sizes, strides,
    devices, constants, modes) makes a specialization. Parameters and buffers are read at every
    call. Where eager would record a graph for gradients, so does the compiled call: one node, which
    runs a compiled backward pass.

    Args:
        target: a function, nn.Module, method, fusion built by hand as a `torch.fx.Graph`,
            `hostjit.FusionDefinition`, `hostjit.ir.Program` or Host IR text. Without it, returns
            a decorator.
        runtime: "jit", "evaluator", or None to follow the knob `host_ir_jit`.
        fallback: run a call that cannot be captured whole in parts: what is before and after a
            decision on a tensor's value, an operator whose size depends on values, a print is
            compiled. Where gradients are computed inside, or the break is in a loop, calls are
            recorded first, as by `hostjit.capture`. What cannot be compiled at all runs eagerly. A
            warning says why and where. False makes that an error. Not what eager alone can do,
            which runs eagerly with the warning all the same: writes of inputs that gradients flow
            through, writes of inputs that share memory, tensors that are sparse, quantised or on
            neither the CPU nor CUDA, results that are conjugated or negated lazily or that share
            memory where gradients are enabled, optimizers with hooks or without a rule, and
            signatures beyond the recompile limit.
        reuse_outputs: return the same tensors at every call of a signature, written anew: for
            control loops that are done with a result when they ask for the next. A call makes new
            ones where that is not safe: when an input shares memory with the last result, when
            the last result was resized, given other memory or a gradient, when another thread
            called last, and when the last call had other sizes and the same program. Views of a
            result, NumPy's too, see the next one. Results of ATen calls, results that need a
            gradient or that some object keeps, and those of calls in parts are new as ever.
        graphs: CUDA graphs of the launches that follow one another: "auto" runs one where that
            takes less of the host's time than the launches, measured over the first 16 calls; "on"
            always, "off" never; None follows the knobs `cuda_graphs` and `cuda_graphs_always`, by
            default "auto". Nothing else changes: inputs may be anywhere, results are new.
        streams: put work on a CUDA device that does not depend on one another on so many streams,
            the caller's among them, with events where it does. Results belong to the caller's
            stream. None follows the knob `spread_streams`, by default 1.
        kernels: "hostjit", or "inductor" for those that torch.compile's default backend makes, in
            its schedule: C++ on the CPU. Where they cannot be had, a warning says why, and the
            program has hostjit's.
        dynamic: compile for any size of all dims of tensor arguments, any value of all numbers
            among the arguments (True), of marked ones only (False), or also of those that turn out
            to vary (None): at the second size of a dim or value of a number. Numbers elsewhere
            (attributes, globals) are compiled for any value when they vary, unless False. Sizes 0
            and 1, and what the program cannot do for any size or value, have programs of their own.
        dynamic_shapes: dims to compile for any size from the first call on, per argument, as
            torch.export takes them: `{"x": {0: Dim("batch")}}`. Ranges are not enforced.

    Returns:
        A callable with the signature of `target`; attributes it lacks are those of `target`.
        `host_ir()`, `llvm_ir()`, `asm()`, `memory_plan()` and `timings()` tell of the
        specialization used last; `profile(*args)` measures the nodes of the one for a call.

    Raises:
        hostjit.CaptureError: at a call that cannot be captured, with `fallback=False` and for
            none of the reasons listed there.
        hostjit.Error: malformed Host IR text, unknown runtime, choice of graphs or kernels, or
            number of streams.

    Example:
        fast = hostjit.compile(model)
        with torch.no_grad():
            y = fast(x)
    """
    if runtime not in (None, "jit", "evaluator"):
        raise _C.Error(f"unknown runtime '{runtime}', expected 'jit' or 'evaluator'")
    choices = CodeChoices(graphs, streams, kernels)
    if target is None or isinstance(target, (staticmethod, classmethod)):

        def decorate(decorated: Any) -> _C.CompiledFunction:
            compiled: _C.CompiledFunction = compile(
                decorated,
                runtime=runtime,
                fallback=fallback,
                reuse_outputs=reuse_outputs,
                graphs=graphs,
                streams=streams,
                kernels=kernels,
                dynamic=dynamic,
                dynamic_shapes=dynamic_shapes,
            )
            return compiled

        return decorate if target is None else type(target)(decorate(target.__func__))
    if isinstance(target, _C.CompiledFunction):
        target = target.owner.arguments()[0]
    if isinstance(target, str):
        target = _C.parse(target)
    if isinstance(target, torch.fx.Graph):
        target = torch.fx.GraphModule({}, target)
    if isinstance(target, _C.Program):
        from hostjit.compiling.program_compilation import ProgramCompilation

        program = ProgramCompilation(target, runtime, reuse_outputs, choices)
        return _C.CompiledFunction(program.run, program)
    if _is_fusion(target):
        from hostjit.fusion.compilation import compile_fusion

        if dynamic_shapes is not None:
            raise _C.Error("a FusionDefinition says itself which sizes are open: -1 in its shapes")
        return compile_fusion(target, runtime, fallback, reuse_outputs, choices, dynamic)
    if not callable(target):
        raise TypeError(
            f"hostjit.compile takes a callable, a torch.fx.Graph, a FusionDefinition, a Program or "
            f"Host IR text, got {type(target).__qualname__}"
        )
    import_compiler()
    from hostjit.compiling.compilation import Compilation
    from hostjit.compiling.dynamic_shapes import DynamicShapes
    from hostjit.optimizers import compilation_of_step, optimizer_of

    if (optimizer := optimizer_of(target)) is not None:
        own_kernels = dataclasses.replace(choices, kernels="hostjit")
        step = compilation_of_step(target, optimizer, runtime, fallback, own_kernels)
        return _C.CompiledFunction(target, step)
    shapes = DynamicShapes(dynamic, dynamic_shapes)
    compilation = Compilation(target, runtime, fallback, reuse_outputs, shapes, choices)
    return _C.CompiledFunction(target, compilation)


def _is_fusion(target: Any) -> bool:
    # Nothing is one before that module was imported.
    fusion = sys.modules.get("hostjit.fusion")
    return fusion is not None and isinstance(target, fusion.FusionDefinition)
