# SPDX-License-Identifier: Apache-2.0
"""Methods of tensors that wait for their arguments at a break: `x.gather(1, torch.tensor(places))`.

Such a method is another object at every call, so that the rest of the code would be compiled for
each. It is given the tensor and the name instead.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import TensorVariable

from hostjit.capturing.dynamo.method_handlers import method_of

__all__ = ["WaitingMethod", "waiting_method"]


class WaitingMethod(NamedTuple):
    """A method of a tensor; Dynamo takes it for what is in it."""

    tensor: Tensor
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return getattr(self.tensor, self.name)(*args, **kwargs)


class _WaitingMethodVariable(VariableTracker):
    """Dynamo's variable for one that its code makes."""

    _nonvar_fields = VariableTracker._nonvar_fields | {"name"}

    def __init__(self, tensor: VariableTracker, name: str, **options: Any) -> None:
        super().__init__(**options)
        self.tensor = tensor
        self.name = name

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: codegen.load_import_from(__name__, WaitingMethod.__name__))
        codegen(self.tensor)
        codegen.append_output(codegen.create_load_const(self.name))
        codegen.extend_output(create_call_function(2, False))


def waiting_method(value: VariableTracker) -> VariableTracker:
    """Return what is handed on in the place of a value: of another than such a method, itself."""
    found = method_of(value)
    if found is None or value.source is not None:
        return value
    owner = found[0].realize()
    if not isinstance(owner, TensorVariable) or owner.python_type() is not Tensor:
        return value
    return _WaitingMethodVariable(owner, found[1])
