# SPDX-License-Identifier: Apache-2.0
"""torch.compile with its default backend, Inductor."""

import types
from typing import Any, ClassVar

import torch
from torch import nn
from workloads import Workload

from peers.peer import Peer, Prepared


class TorchCompile(Peer):
    name = "compile"
    description = "torch.compile(module)(*tensors)"
    options: ClassVar[dict[str, Any]] = {}

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        module = with_own_code(workload.module())
        options = dict(self.options) or None
        return Prepared(torch.compile(module, dynamic=False, options=options))


class TorchCompileCppWrapper(TorchCompile):
    name = "compile_cpp_wrapper"
    description = "torch.compile(module, options={'cpp_wrapper': True})(*tensors)"
    options: ClassVar[dict[str, Any]] = {"cpp_wrapper": True}


class TorchCompileFreezing(TorchCompile):
    name = "compile_freezing"
    description = "torch.compile(module, options={'freezing': True})(*tensors)"
    options: ClassVar[dict[str, Any]] = {"freezing": True}


def with_own_code(module: nn.Module) -> nn.Module:
    """Give the module a forward whose code object no other module shares.

    Dynamo keeps the compiled versions of all instances of a class with the code object and searches
    them at every call; in a user's process there would be one.
    """
    forward = type(module).forward
    copy = types.FunctionType(
        forward.__code__.replace(), forward.__globals__, forward.__name__, forward.__defaults__
    )
    copy.__kwdefaults__ = forward.__kwdefaults__
    own = type(type(module).__name__, (type(module),), {"forward": copy})
    module.__class__ = own
    return module
