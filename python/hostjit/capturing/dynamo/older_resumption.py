# SPDX-License-Identifier: Apache-2.0
"""The functions that Dynamo of torch 2.11 writes for the rest of a call, as later ones make them.

Those with cells were made where they are called, over the globals of the outermost frame; later
versions put a function among the globals that makes one, over the globals of its own frame. And
nothing goes on in the middle of a transform of `torch.func`.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.bytecode_transformation import create_call_function, create_swap
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import ctx_manager

from hostjit.replacements import replaced_attribute

__all__ = ["can_make_resumed", "making_resumed"]


def can_make_resumed() -> bool:
    """Tell whether functions that resume are made over the globals of their frames."""
    return _makes_resumed() or hasattr(PyCodegen, "make_function_with_closure")


@contextlib.contextmanager
def making_resumed() -> Iterator[None]:
    """Have them made so, in this thread."""
    if _makes_resumed():
        yield
        return
    owner = threading.get_ident()
    frames: list[Any] = []
    create: Any = InstructionTranslatorBase.create_resume
    install: Any = OutputGraph.install_global_unsafe
    make: Any = PyCodegen.make_function_with_closure
    may_stop: Any = InstructionTranslatorBase.should_compile_partial_graph

    def create_resume(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return create(self, *args, **kwargs)
        frames.append(self)
        try:
            return create(self, *args, **kwargs)
        finally:
            frames.pop()

    def install_global_unsafe(self: Any, name: str, value: Any) -> None:
        if threading.get_ident() == owner and frames and isinstance(value, types.CodeType):
            value = _maker(value, frames[-1].f_globals, name)
        install(self, name, value)

    def make_function_with_closure(self: Any, name: str, code: types.CodeType) -> None:
        if threading.get_ident() != owner:
            make(self, name, code)
            return
        load = self.create_load_global(name, add=True)
        self.extend_output([load, *create_swap(2), *create_call_function(1, push_null=True)])

    def should_compile_partial_graph(self: Any) -> Any:
        if threading.get_ident() == owner and _is_in_transform(self):
            return False
        return may_stop(self)

    with (
        replaced_attribute(InstructionTranslatorBase, "create_resume", create_resume),
        replaced_attribute(OutputGraph, "install_global_unsafe", install_global_unsafe),
        replaced_attribute(
            InstructionTranslatorBase, "should_compile_partial_graph", should_compile_partial_graph
        ),
        replaced_attribute(PyCodegen, "make_function_with_closure", make_function_with_closure),
    ):
        yield


def _makes_resumed() -> bool:
    return hasattr(OutputGraph, "install_resume_function_global")


def _is_in_transform(translator: Any) -> bool:
    """Tell whether a frame, or one that called it, is between the beginning and the end of one."""
    while translator is not None:
        for block in translator.block_stack:
            if isinstance(block.with_context, _TRANSFORMS):
                return True
        translator = translator.parent
    return False


_TRANSFORMS = tuple(
    kind
    for name, kind in vars(ctx_manager).items()
    if isinstance(kind, type) and "IncrementNesting" in name
)


def _maker(
    code: types.CodeType, f_globals: dict[str, Any], name: str
) -> Callable[[tuple[types.CellType, ...]], types.FunctionType]:
    def make(cells: tuple[types.CellType, ...]) -> types.FunctionType:
        return types.FunctionType(code, f_globals, name, None, cells)

    return make
