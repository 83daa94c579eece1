# SPDX-License-Identifier: Apache-2.0
"""The dims that a user names for a call's tensors, as `dynamic_shapes` of torch.export does."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.arguments import items_of
from hostjit.capturing.by_fields import NONE_BY_FIELDS, ByFields
from hostjit.capturing.instances import fields_of, is_a

__all__ = ["named_dims", "parameters_of"]

_STATIC = getattr(torch.export.Dim, "STATIC", None)


def named_dims(
    specs: Any,
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    by_fields: ByFields = NONE_BY_FIELDS,
) -> dict[int, set[int]]:
    """Return the dims that a spec leaves open, by tensor leaf of a call of `target`.

    Raises:
        hostjit.Error: for a spec that does not fit the parameters of `target` or the call.
    """
    parameters = parameters_of(target)
    if isinstance(specs, Mapping):
        _check_names(specs, parameters)
    elif not _is_list(specs):
        raise _C.Error(f"dynamic_shapes is {specs!r}, expected a dict, list or tuple")
    elif parameters:
        specs = dict(zip([parameter.name for parameter in parameters], specs, strict=False))
    else:
        specs = dict(enumerate(specs))
    found: list[set[int]] = []
    for value, spec in zip(args, _of_positions(specs, parameters, args), strict=True):
        found += _of_leaves(value, spec, by_fields)
    for name, value in kwargs.items():
        found += _of_leaves(value, _of_keyword(specs, parameters, name), by_fields)
    return dict(enumerate(found))


def parameters_of(target: Any) -> list[inspect.Parameter]:
    """Return the parameters of a callable; none where it does not tell."""
    function = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _check_names(specs: Mapping[Any, Any], parameters: Sequence[inspect.Parameter]) -> None:
    names = {parameter.name for parameter in parameters}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    unknown = [repr(name) for name in specs if name not in names]
    if unknown and names and not takes_any:
        raise _C.Error(
            f"dynamic_shapes names {', '.join(unknown)}, expected names of parameters: "
            f"{', '.join(sorted(names))}"
        )


def _of_positions(
    specs: Mapping[Any, Any], parameters: Sequence[inspect.Parameter], args: Sequence[Any]
) -> list[Any]:
    """The specs of the positional arguments. Those of `*args` are in a list or tuple."""
    found: list[Any] = []
    for parameter in parameters:
        spec = specs.get(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = args[len(found) :]
            found += [_part(spec, i, i, len(rest)) for i in range(len(rest))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            found.append(spec)
    if not parameters:
        found = list(specs.values())
    return [*found, *[None] * len(args)][: len(args)]


def _of_keyword(
    specs: Mapping[Any, Any], parameters: Sequence[inspect.Parameter], name: str
) -> Any:
    """The spec of a keyword argument. Those of `**kwargs` are in a dict, or beside the others."""
    if name in specs:
        return specs[name]
    for parameter in parameters:
        rest = specs.get(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD and isinstance(rest, Mapping):
            return rest.get(name)
    return None


def _of_leaves(value: Any, spec: Any, by_fields: ByFields) -> Iterator[set[int]]:
    """The dims named of each tensor in a value, in the order of `tensor_leaves`."""
    if is_a(value, torch.Tensor):
        yield _dims(value, spec)
        return
    items = items_of(value, by_fields) or {}
    for index, (key, item) in enumerate(items.items()):
        yield from _of_leaves(item, _part(spec, key, index, len(items)), by_fields)


def _part(spec: Any, key: Any, index: int, count: int) -> Any:
    """The part of a container's spec for one of its items: by key, name of a field, or place."""
    if spec is None:
        return None
    if isinstance(spec, Mapping):
        return spec.get(key)
    if not _is_list(spec):
        return (fields_of(spec) or {}).get(key)
    if len(spec) != count:
        raise _C.Error(f"dynamic_shapes has {len(spec)} parts for {count} items: {spec!r}")
    return spec[index]


def _dims(tensor: torch.Tensor, spec: Any) -> set[int]:
    """The dims that a spec leaves open: a Dim, Dim.AUTO or Dim.DYNAMIC, not None or a number."""
    if spec is None:
        return set()
    if not isinstance(spec, Mapping) and not _is_list(spec):
        raise _C.Error(f"dynamic_shapes has {spec!r} for a tensor, expected a dict or a list")
    pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
    dims = {dim for dim, kind in pairs if kind is not None and not _is_static(kind)}
    if beyond := [dim for dim in dims if not -tensor.dim() <= dim < tensor.dim()]:
        raise _C.Error(f"dynamic_shapes names dim {beyond[0]} of a tensor with {tensor.dim()} dims")
    return {dim % tensor.dim() for dim in dims}


def _is_static(kind: Any) -> bool:
    return isinstance(kind, int) or getattr(kind, "type", None) is _STATIC or kind is _STATIC


def _is_list(spec: Any) -> bool:
    return isinstance(spec, Sequence) and not isinstance(spec, str)
