# SPDX-License-Identifier: Apache-2.0
"""hostjit as a backend of `torch.compile`.

Light to import: it is with Dynamo, which also finds it as an entry point of the group
`torch_dynamo_backends`. What compiles is imported with the first graph.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo import convert_frame
from torch._dynamo.backends import registry
from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

from hostjit.dynamo_import import import_compiler

__all__ = ["NAME", "backend_of", "compile_graph", "convert_as_dynamo", "converting"]

NAME = "hostjit"
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
convert_as_dynamo: Callable[..., Any] = convert_frame.ConvertFrameAssert.__call__
"""Compiles a frame as Dynamo does: takes an object of that class, and its arguments."""

converting: contextvars.ContextVar[Callable[..., Any] | None]
converting = contextvars.ContextVar("hostjit_converting", default=None)
"""What compiles frames for the backends of this package's own, in its place."""


def compile_graph(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo's: the backend, as Dynamo calls it.

    Args:
        module: the graph; inputs that need gradients are compiled with their backward.
        inputs: examples of its inputs, tensors and numbers.
        mode: any that PyTorch knows; they make no difference.
        options: "runtime", "fallback", "reuse_outputs", "graphs", "streams" and "kernels", as of
            `hostjit.compile`; the second is on by default.

    Returns:
        A callable that takes the inputs and returns the tuple of the graph's outputs.

    Raises:
        hostjit.Error: an unknown mode or option.

    Example:
        fast = torch.compile(model, backend="hostjit", options={"runtime": "evaluator"})
    """
    from hostjit.backend.dynamo_graph import compile_dynamo_graph
    from hostjit.backend.options import read_options

    return compile_dynamo_graph(module, inputs, read_options(mode, options))


def _register() -> None:
    """Tell Dynamo the backend's name, and have it corrected while it compiles for this backend.

    The name is known already where Dynamo has found the entry point itself.

    Dynamo loads an entry point, this package with it, when the name is first used, and registers
    it then: to register it here too would be an error.
    """
    known: Mapping[str, Any] = getattr(registry, "_BACKENDS", {})
    if NAME not in known:
        registry.register_backend(compile_graph, name=NAME)
    convert_frame.ConvertFrameAssert.__call__ = _convert_corrected  # type: ignore[method-assign]


def _convert_corrected(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile a frame: what `ConvertFrameAssert` does when it is called.

    Frames of this package, of what looks again at a call say, are left alone with what they call.
    """
    if frame.f_code.co_filename.startswith(_OWN_FOLDER):
        return ConvertFrameReturn(FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
    given = backend_of(self._torchdynamo_orig_backend)
    # What torch.compile makes of a name, a mode and options.
    if getattr(given, "compiler_fn", given) is not compile_graph:
        convert = converting.get() or convert_as_dynamo
        return convert(self, frame, *args, **kwargs)
    import_compiler()
    from hostjit.backend.frames import convert_corrected

    return convert_corrected(convert_as_dynamo, self, frame, *args, **kwargs)


def backend_of(backend: Any) -> Any:
    """Return what the user gave as a backend, without what Dynamo has put around it."""
    return getattr(backend, "_torchdynamo_orig_backend", backend)


# Whoever is first: Dynamo has this imported, and this imports Dynamo.
_register()
