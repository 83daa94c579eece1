# SPDX-License-Identifier: Apache-2.0
"""Compiles a definition. What it says about its inputs is checked where a call matches no program.

Every program was made for inputs that were checked, and is run for inputs alike in all that the
definition may say: type, dtype, device, sizes and strides, or the relations between those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
import torch._dynamo

from hostjit import _C
from hostjit.compiling.code_choices import CodeChoices
from hostjit.compiling.compilation import Compilation
from hostjit.compiling.dynamic_shapes import DynamicShapes
from hostjit.compiling.leaf_histories import Leaves
from hostjit.fusion.definition import FusionDefinition
from hostjit.fusion.inputs import TensorInput

__all__ = ["compile_fusion"]


def compile_fusion(
    fusion: FusionDefinition,
    runtime: str | None = None,
    fallback: bool = True,
    reuse_outputs: bool = False,
    choices: CodeChoices | None = None,
    dynamic: bool | None = None,
    device: torch.device | None = None,
) -> _C.CompiledFunction:
    """Return the callable of a definition; arguments are those of `hostjit.compile`.

    `device`: where a fusion without tensor inputs runs.
    """
    module = torch.fx.GraphModule({}, fusion.graph(device), "FusionDefinition")
    shapes = _FusionShapes(fusion, dynamic)
    compilation = _FusionCompilation(
        module.forward, runtime, fallback, reuse_outputs, shapes, choices
    )
    compilation.fusion = fusion
    return _C.CompiledFunction(module.forward, compilation)


class _FusionCompilation(Compilation):
    """Specializes a definition for inputs that it takes."""

    has_original = False  # which would take any inputs
    _has_parts = False
    fusion: FusionDefinition

    def arguments(self) -> tuple[Any, dict[str, Any]]:
        given = super().arguments()[1]
        return self.fusion, given

    @torch._dynamo.disable  # type: ignore[untyped-decorator]
    def specialize(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do as `Compilation`; raises hostjit.Error for inputs that contradict the definition."""
        if kwargs:
            raise _C.Error("a fusion takes its inputs by position")
        self.fusion.check(args)
        return super().specialize(function, args, kwargs)

    def _target_name(self) -> str:
        return "FusionDefinition"


class _FusionShapes(DynamicShapes):
    """Opens sizes that the definition leaves open, and its scalars from the first call on."""

    def __init__(self, fusion: FusionDefinition, dynamic: bool | None) -> None:
        super().__init__(dynamic, None)
        tensors = (known for known in fusion.inputs if isinstance(known, TensorInput))
        self._open: Sequence[Set[int]] = [
            {dim for dim, size in enumerate(tensor.sizes) if size is None} for tensor in tensors
        ]

    def asked_for(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[int, set[int]]:
        found = super().asked_for(target, args, kwargs)
        kept = {leaf: dims & self._open[leaf] for leaf, dims in found.items()}
        return {leaf: dims for leaf, dims in kept.items() if dims}

    def _numbers(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], leaves: Leaves
    ) -> Set[int]:
        if self.refuses_numbers(args, kwargs):
            return frozenset()
        numbers = [value for value in args if type(value) in (int, float)]
        return {
            place
            for place, value in enumerate(numbers)
            if type(value) is int or math.isfinite(value)
        }
