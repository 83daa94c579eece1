# SPDX-License-Identifier: Apache-2.0
"""From Dynamo's torch-level graph to a functional graph of ATen operators.

The graph is interpreted below autograd with PyTorch's own functionalisation over fake tensors, and
what reaches the dispatcher is recorded. Below autograd the dispatcher hands composite operators to
the modes undecomposed, so that those in `KEPT_OPERATORS` stay one node; the others decompose as
they do in eager mode. Random operators stay in order. In-place work on inputs becomes functional
work and a trailing `aten.copy_(input, new)`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from hostjit.capture.errors import CaptureError, CaptureFailure

__all__ = ["KEPT_OPERATORS", "FunctionalGraph", "trace_functional"]

aten = torch.ops.aten

# Composite operators that stay one node.
KEPT_OPERATORS: tuple[torch._ops.OpOverload, ...] = (aten.linear.default,)


@dataclasses.dataclass
class FunctionalGraph:
    """A functional ATen graph.

    Attributes:
        graph_module: placeholders in the order of `inputs`; the output is a flat tuple.
        inputs: the live tensors behind the placeholders: Dynamo's, then lifted constants.
        dynamo_input_count: how many of the inputs are Dynamo's.
        mutated: positions of the inputs that the graph writes, by a trailing `aten.copy_`.
    """

    graph_module: torch.fx.GraphModule
    inputs: list[torch.Tensor]
    dynamo_input_count: int
    mutated: tuple[int, ...]


def trace_functional(
    module: torch.fx.GraphModule, inputs: Sequence[Any], fake_mode: Any
) -> FunctionalGraph:
    """Trace `module` to a functional ATen graph; `inputs` are the live tensors it takes."""
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                f"the program takes a {type(value).__qualname__} that is computed for each call",
                hint="pass it as a tensor, or as a constant that does not change",
            )
    attributes = _tensor_attributes(module)
    live = [*inputs, *attributes.values()]
    _refuse_overlap(module, inputs)
    fakes = [fake_mode.from_tensor(tensor, static_shapes=True) for tensor in live]
    recipe = _Recipe(module, len(inputs), list(attributes))
    with (
        _kept_whole(KEPT_OPERATORS),
        torch.no_grad(),
        fake_mode,
        torch._C._AutoDispatchBelowAutograd(),
        fx_traceback.preserve_node_meta(),
    ):
        traced = make_fx(recipe)(*fakes)
    live.extend(_lift_constants(traced))
    _rename_placeholders(traced, module)
    _check_targets(traced)
    _check_aliasing(traced, recipe.output_storages)
    _remove_dead_nodes(traced.graph)
    traced.recompile()
    return FunctionalGraph(traced, live, len(inputs), tuple(recipe.mutated))


class _Recipe:
    """The function that is traced: interpret on functional tensors, then give back plain ones."""

    def __init__(self, module: torch.fx.GraphModule, count: int, attributes: list[str]) -> None:
        self._module = module
        self._count = count
        self._attributes = attributes
        self.mutated: list[int] = []
        self.output_storages: list[int | None] = []

    def __call__(self, *args: torch.Tensor) -> list[Any]:
        with FunctionalTensorMode():
            wrapped: list[Any] = [FunctionalTensor.to_functional(arg) for arg in args]
            attributes = dict(zip(self._attributes, wrapped[self._count :], strict=True))
            interpreter = _Interpreter(self._module, attributes)
            results = interpreter.run(*wrapped[: self._count])
            outputs = [self._unwrap(result) for result in results]
            self.output_storages = [_storage(result) for result in results]
            self.mutated = [
                index for index, value in enumerate(wrapped) if self._is_mutated(value)
            ]
            news = [self._unwrap(wrapped[index]) for index in self.mutated]
        for index, new in zip(self.mutated, news, strict=True):
            aten.copy_.default(args[index], new)
        return self._restore_aliases(args, wrapped, results, outputs)

    def _restore_aliases(
        self,
        args: Sequence[torch.Tensor],
        wrapped: Sequence[Any],
        results: Sequence[Any],
        outputs: list[Any],
    ) -> list[Any]:
        """Return inputs as such, and views of written inputs as views of what was written."""
        written = {_storage(wrapped[index]): index for index in self.mutated}
        for position, result in enumerate(results):
            same = [index for index, value in enumerate(wrapped) if value is result]
            if same:
                outputs[position] = args[same[0]]
            elif isinstance(result, torch.Tensor) and _storage(result) in written:
                base = args[written[_storage(result)]]
                if base.dtype != result.dtype:
                    raise CaptureError(
                        CaptureFailure.UNSUPPORTED_PROGRAM,
                        "a result is a view with another dtype of an input that the call changes",
                        hint="return a clone of it",
                    )
                outputs[position] = aten.as_strided.default(
                    base, result.size(), result.stride(), result.storage_offset()
                )
        return outputs

    @staticmethod
    def _unwrap(value: Any) -> Any:
        if not isinstance(value, FunctionalTensor):
            return value
        torch._sync(value)
        return torch._from_functional_tensor(value.elem)

    @staticmethod
    def _is_mutated(value: Any) -> bool:
        element = value.elem
        if torch._functionalize_has_metadata_mutation(element) or (  # type: ignore[attr-defined]
            torch._functionalize_was_storage_changed(element)  # type: ignore[attr-defined]
        ):
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "the call changes the sizes, strides or storage of an input",
                hint="change a view of it, or a clone",
            )
        return bool(torch._functionalize_has_data_mutation(element))  # type: ignore[attr-defined]


class _Interpreter(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, attributes: dict[str, Any]) -> None:
        super().__init__(module)
        self._tensor_attributes = attributes

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in self._tensor_attributes:
            return self._tensor_attributes[target]
        return super().get_attr(target, args, kwargs)


def _storage(value: Any) -> int | None:
    if not isinstance(value, torch.Tensor):
        return None
    return int(value.untyped_storage()._cdata)


@contextlib.contextmanager
def _kept_whole(operators: Sequence[torch._ops.OpOverload]) -> Iterator[None]:
    """Make `decompose()` of these composite operators decline."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    missing = object()
    saved = [(op, op.py_kernels.get(key, missing)) for op in operators]
    for op in operators:
        op.py_kernels[key] = lambda *args, **kwargs: NotImplemented
    try:
        yield
    finally:
        for op, kernel in saved:
            if kernel is missing:
                del op.py_kernels[key]
            else:
                op.py_kernels[key] = kernel  # type: ignore[assignment]


def _tensor_attributes(module: torch.fx.GraphModule) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = _attribute(module, node.target)
            if isinstance(value, torch.Tensor):
                found[node.target] = value
    return found


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _refuse_overlap(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> None:
    """Inputs that share memory are fine unless one is written: functionalisation can't see it."""
    if not any(_may_write(node) for node in module.graph.nodes):
        return
    seen: dict[int, torch.Tensor] = {}
    for tensor in inputs:
        storage = tensor.untyped_storage()._cdata
        if storage in seen and tensor.numel():
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "two inputs share memory, and the call changes tensors in place",
                hint="pass tensors that do not share memory, or clone one of them",
            )
        seen[storage] = tensor


def _may_write(node: torch.fx.Node) -> bool:
    """Tell whether a node of Dynamo's graph may change a tensor; cheap, and errs to yes."""
    if node.op in ("placeholder", "output", "get_attr"):
        return False
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in _KNOWN_PURE:
        return False
    return name.endswith("_") or name in _KNOWN_WRITERS or name.startswith("i")


_KNOWN_PURE = frozenset({"isnan", "isinf", "isfinite", "is_nonzero", "item", "index_select"})
_KNOWN_WRITERS = frozenset({"setitem", "batch_norm", "instance_norm", "detach_"})


def _lift_constants(traced: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Turn tensor attributes of the traced graph into placeholders after the others."""
    lifted: dict[str, torch.fx.Node] = {}
    values: list[torch.Tensor] = []
    graph = traced.graph
    last = None
    for node in list(graph.nodes):
        if node.op == "placeholder":
            last = node
        if node.op != "get_attr":
            continue
        value = _attribute(traced, node.target)
        if not isinstance(value, torch.Tensor):
            continue
        if node.target not in lifted:
            with graph.inserting_after(last) if last is not None else graph.inserting_before():
                lifted[node.target] = graph.placeholder(f"constant_{len(values)}")
            last = lifted[node.target]
            last.meta.update(node.meta)
            values.append(value)
        node.replace_all_uses_with(lifted[node.target])
        graph.erase_node(node)
    return values


def _rename_placeholders(traced: torch.fx.GraphModule, module: torch.fx.GraphModule) -> None:
    """Give the placeholders Dynamo's names, which say where in the user's data they are."""
    names = [node for node in module.graph.nodes if node.op == "placeholder"]
    ours = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for node, original in zip(ours, names, strict=False):
        node.name = node.target = original.name
        node.meta.setdefault("stack_trace", original.meta.get("stack_trace"))


def _check_targets(traced: torch.fx.GraphModule) -> None:
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if _is_symbolic(node.meta.get("val")):
            raise CaptureError(
                CaptureFailure.DATA_DEPENDENT,
                f"{node.target} gives a number or a size that depends on the values of a tensor",
                where=source_location(node),
                hint="keep it in a tensor, or run this function eagerly",
            )
        target = node.target
        if isinstance(target, torch._ops.OpOverload) or getattr(target, "__name__", "") == (
            "getitem"
        ):
            continue
        raise CaptureError(
            CaptureFailure.UNSUPPORTED_PROGRAM,
            f"the program contains {target}, which is not an operator of the dispatcher",
            where=source_location(node),
            hint="write it with tensor operators, or run this function eagerly",
        )


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, (tuple, list)):
        return any(_is_symbolic(item) for item in value)
    return isinstance(value, torch.Tensor) and any(
        isinstance(number, torch.SymInt) for number in (*value.size(), *value.stride())
    )


def _check_aliasing(traced: torch.fx.GraphModule, storages: Sequence[int | None]) -> None:
    """Refuse a trace in which results that share memory in eager mode would not."""
    outputs = traced.graph.output_node().args[0]
    assert isinstance(outputs, (tuple, list))
    groups: dict[int, int] = {}
    for node, storage in zip(outputs, storages, strict=True):
        if storage is None or not isinstance(node, torch.fx.Node):
            continue
        found = _storage(node.meta["val"])
        assert found is not None
        if groups.setdefault(storage, found) != found:
            raise CaptureError(
                CaptureFailure.UNSUPPORTED_PROGRAM,
                "two results share memory in a way that the functional graph does not keep",
                where=source_location(node),
                hint="return a clone of one of them",
            )


def _remove_dead_nodes(graph: torch.fx.Graph) -> None:
    """Remove nodes without users, except writes and random operators (they move generators)."""
    for node in reversed(list(graph.nodes)):
        if node.users or node.op in ("placeholder", "output"):
            continue
        if isinstance(node.target, torch._ops.OpOverload):
            schema = node.target._schema
            tags = node.target.tags
            if schema.is_mutable or torch.Tag.nondeterministic_seeded in tags:
                continue
            if not schema.returns:
                continue
        graph.erase_node(node)


def source_location(node: torch.fx.Node) -> str | None:
    """Return "file:line" of the innermost user frame that made this node, when it is known."""
    from hostjit.capture.failures import is_library_file

    trace = node.meta.get("stack_trace")
    found = None
    for line in (trace or "").splitlines():
        parts = line.strip().split('"')
        if len(parts) == 3 and parts[0] == "File " and parts[2].startswith(", line "):
            if not is_library_file(parts[1]):
                found = f"{parts[1]}:{parts[2].split(',')[1].removeprefix(' line ').strip()}"
    return found
