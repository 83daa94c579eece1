# SPDX-License-Identifier: Apache-2.0
"""Loops of many operators, as `for _ in range(1000)`: passes of them are compiled, rather.

Dynamo unrolls each loop that it can follow, and what that takes to compile grows with the passes:
some milliseconds for each operator. One program of a pass takes as much as a pass, and runs them
almost as fast.
"""

from __future__ import annotations

import contextlib
import dis
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from hostjit.bytecode.loops import lines_of_loops
from hostjit.capturing.dynamo.instruction_handlers import Handler, replaced_handlers
from hostjit.capturing.failures import LongLoopError, is_library_file

__all__ = ["stopping_at_long_loops"]

# From so many operators on, which take several seconds, of so many passes.
_OPERATORS = 2000
_PASSES = 32
_JUMPS = [name for name in dis.opmap if "JUMP_BACKWARD" in name]
# Operators that draw, by parts of their names: passes that draw run one by one.
_DRAWING = ("rand", "normal", "bernoulli", "multinomial", "dropout", "uniform", "exponential")


@contextlib.contextmanager
def stopping_at_long_loops() -> Iterator[None]:
    """Have Dynamo stop at such loops in this thread, where what they compute can be a function."""
    owner = threading.get_ident()
    # How many operators and passes there were at the end of the first pass of a loop, and are.
    begun: dict[tuple[int, int], list[int]] = {}

    def noting(original: Handler) -> Handler:
        def jump(self: Any, instruction: Any) -> None:
            if threading.get_ident() == owner:
                count = len(self.output.graph.nodes)
                found = begun.setdefault((id(self), id(instruction)), [count, 0])
                found[1] += 1
                if count - found[0] > _OPERATORS and found[1] > _PASSES:
                    found[:] = count, 0  # where it goes on, it is asked again later
                    if _may_stop(self):
                        what = f"a loop of more than {_OPERATORS} operators would be unrolled"
                        raise LongLoopError(what)
            original(self, instruction)

        return jump

    with replaced_handlers(_JUMPS, noting):
        yield


def _may_stop(translator: Any) -> bool:
    """Whether passes of a loop that Dynamo is in can be a function, as far as can be told here."""
    code = translator.f_code
    if is_library_file(code.co_filename) or not _is_outermost(translator):
        return False
    if translator.lineno not in lines_of_loops(code) or not _has_known_iterator(translator):
        return False
    is_inside = translator.output.current_tracer.parent is not None
    if is_inside or torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return not any(map(_keeps_tensors, translator.symbolic_locals.values())) and all(
        map(_is_plain, translator.output.graph.nodes)
    )


def _keeps_tensors(variable: Any) -> bool:
    """Whether a variable has a list with a tensor for each pass, each of which is made anew."""
    items = variable.items if type(variable).__name__ == "ListVariable" else ()
    return sum(type(item).__name__ == "TensorVariable" for item in items) > _PASSES


def _is_outermost(translator: Any) -> bool:
    """Whether no code of the user's calls the one that Dynamo is in."""
    while (translator := translator.parent) is not None:
        if not is_library_file(translator.f_code.co_filename):
            return False
    return True


def _has_known_iterator(translator: Any) -> bool:
    """Whether a loop is over a `range`, or a `while`, which may jump by what is on the stack."""
    is_while = translator.current_instruction.opname.startswith("POP_JUMP")
    below = translator.stack[:-1] if is_while else translator.stack
    kinds = [type(value).__name__ for value in below[-1:]]
    return kinds in ([], ["RangeIteratorVariable"])


def _is_plain(node: torch.fx.Node) -> bool:
    """Whether an operator neither draws, nor has a gradient, nor runs on another device."""
    tensors = [x for x in tree_leaves(node.meta.get("example_value")) if torch.is_tensor(x)]
    if not all(x.is_cpu for x in tensors):
        return False
    if node.op in ("placeholder", "get_attr"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    draws = any(kind in name for kind in _DRAWING)
    return not draws and not any(x.requires_grad for x in tensors)
