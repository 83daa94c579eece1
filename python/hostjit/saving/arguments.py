# SPDX-License-Identifier: Apache-2.0
"""What arguments have to look like, as JSON; made again from an example call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.capturing.by_fields import ByFields
from hostjit.capturing.instances import new_object, slot_names
from hostjit.saving.values import Values, float_from_bits

__all__ = [
    "ExampleCall",
    "arguments_to_json",
    "arguments_to_text",
    "classes_in",
    "example_tensor",
    "number_positions",
    "tensor_to_json",
]


def arguments_to_json(described: Any, values: Values) -> dict[str, Any]:
    """Write what `_C.Specialization.describe` says of arguments.

    Raises hostjit.Error for an argument that is compared with an object of this process.
    """
    positional, named = described
    return {
        "positional": [
            _node_to_json(node, values, f"argument {index}")
            for index, node in enumerate(positional)
        ],
        "named": [
            [name, _node_to_json(node, values, f"argument '{name}'")] for name, node in named
        ],
    }


def _node_to_json(node: Any, values: Values, where: str) -> list[Any]:
    def children(nodes: Sequence[Any]) -> list[Any]:
        return [
            _node_to_json(child, values, f"{where}[{index}]") for index, child in enumerate(nodes)
        ]

    def class_of(kind: type, plain: type) -> str | None:
        return None if kind is plain else values.class_to_json(kind)

    match node:
        case ("tensor" | "tensor_of_any_size" as kind, cls, guard):
            return [kind, tensor_to_json(cls, guard)]
        case ("float", bits):
            return ["value", {"float": f"{bits:016x}"}]
        case ("complex", real, imaginary):
            return ["value", {"complex": [f"{real:016x}", f"{imaginary:016x}"]}]
        case ("open", slot, example):
            return ["open", slot, values.to_json(example)]
        case ("tuple", cls, nodes):
            return ["tuple", class_of(cls, tuple), children(nodes)]
        case ("list", _, nodes):
            return ["list", children(nodes)]
        case ("dict", cls, keys, nodes):
            written = [values.to_json(key) for key in keys]
            return ["dict", class_of(cls, dict), written, children(nodes)]
        case ("object", cls, keys, slots, nodes):
            if not all(type(key) is str for key in keys or ()):
                raise _C.Error(f"{where} has attributes whose names are no texts")
            name = values.class_to_json(cls)
            return ["object", name, keys and list(keys), list(slots), children(nodes)]
        case ("unread",):
            return ["unread"]
        case ("module", cls):
            what = f"a {cls.__qualname__} means something in this process only"
            raise _C.Error(f"{where} is compared with an object: {what}")
    try:
        return ["value", values.to_json(node[1])]
    except _C.Error as error:
        raise _C.Error(f"{where} is compared with an object: {error}") from None


def classes_in(described: Any, kind: str) -> set[type]:
    """Return the classes of objects that what `_C.Specialization.describe` says compares.

    `kind`: "object" for those that are compared by their fields, "identity" for single objects.
    """
    positional, named = described
    pending = [*positional, *(node for _, node in named)]
    found: set[type] = set()
    while pending:
        node = pending.pop()
        if node[0] == kind:
            found.add(node[1] if kind == "object" else type(node[1]))
        if node[0] in ("tuple", "list", "dict", "object"):
            pending.extend(node[-1])
    return found


def tensor_to_json(cls: type, guard: dict[str, Any]) -> dict[str, Any]:
    """Write what a guard of the core describes; raises hostjit.Error for other dispatch keys."""
    described = {
        "dtype": str(guard["dtype"]).removeprefix("torch."),
        "device": guard["device"],
        "sizes": guard["sizes"],
        "strides": guard["strides"],
        "requires_grad": guard["requires_grad"],
        "parameter": cls is torch.nn.Parameter,
    }
    # A tensor of inference mode has other dispatch keys.
    for inference in (False, True):
        found = {**described, "inference": inference}
        if _keys_of(found) == guard["keys"]:
            return found
    raise _C.Error(f"a tensor of dispatch keys {guard['keys']:#x} can't be described")


def _keys_of(described: dict[str, Any]) -> int:
    example = example_tensor({**described, "sizes": [0], "strides": [1]})
    probe = _C.Specialization(
        args=(example,), kwargs={}, program=None, bindings=(), output=("object", None)
    )
    keys: int = probe.describe()["arguments"][0][0][2]["keys"]
    return keys


def example_tensor(described: dict[str, Any]) -> torch.Tensor:
    """Return a tensor like the one that was described; its values are any."""
    dtype = getattr(torch, described["dtype"])
    with torch.inference_mode(bool(described["inference"])), torch.no_grad():
        tensor = torch.empty_strided(
            described["sizes"], described["strides"], dtype=dtype, device=described["device"]
        )
        if described["parameter"]:
            return torch.nn.Parameter(tensor, requires_grad=described["requires_grad"])
        return tensor.requires_grad_() if described["requires_grad"] else tensor


class ExampleCall:
    """Arguments of a call that fits.

    Args:
        described: what `arguments_to_json` returned.
        values: reads values.
        same_as: for each tensor the first one that is the same object.
        first_of: the same for each list, dict and object that is compared by its fields.
        given: tensors by position that are no new ones.

    Attributes:
        args: positional arguments.
        kwargs: the others.
        tensors: those among them, in order.
        by_fields: classes of those that are compared by their fields, with their slots.
    """

    def __init__(
        self,
        described: dict[str, Any],
        values: Values,
        same_as: Sequence[int],
        given: dict[int, torch.Tensor],
        first_of: Sequence[int],
    ) -> None:
        self._values = values
        self._same_as = same_as
        self._given = given
        self._first_of = first_of
        self._objects: list[Any] = []
        self.by_fields: dict[type, tuple[str, ...]] = {}
        self._read: dict[type, set[str]] = {}
        self._with_unread: set[type] = set()
        self.tensors: list[torch.Tensor] = []
        self.args = tuple(self._make(node) for node in described["positional"])
        self.kwargs = {name: self._make(node) for name, node in described["named"]}

    def _make(self, node: list[Any]) -> Any:
        match node:
            case ["tensor" | "tensor_of_any_size", content]:
                return self._tensor(content)
            case ["value", content]:
                return self._values.from_json(content)
            case ["open", _, content]:
                return self._values.from_json(content)
            case ["tuple", name, nodes]:
                items = tuple(self._make(child) for child in nodes)
                if name is None:
                    return items
                kind = self._tuple_class(name)
                return kind(items) if kind is torch.Size else tuple.__new__(kind, items)
            case ["list", nodes]:
                place = self._begin_object()
                return self._end_object(place, [self._make(child) for child in nodes])
            case ["dict", name, keys, nodes]:
                kind = dict if name is None else self._values.classes.find(name)
                if not issubclass(kind, dict):
                    raise ValueError(f"{name} is no dict")
                place = self._begin_object()
                filled = kind()
                for key, child in zip(keys, nodes, strict=True):
                    filled[self._values.from_json(key)] = self._make(child)
                return self._end_object(place, filled)
            case ["unread"]:
                return None
            case ["object", name, keys, slots, nodes]:
                kind = self._record_class(name, tuple(slots))
                named = zip((*(keys or ()), *slots), nodes, strict=True)
                read = {field for field, child in named if child != ["unread"]}
                self._read.setdefault(kind, set()).update(read)
                if len(read) < len(nodes):
                    self._with_unread.add(kind)
                place = self._begin_object()
                fields = [self._make(child) for child in nodes]
                return self._end_object(place, new_object(kind, [*(keys or ()), *slots], *fields))
        raise ValueError(f"unknown kind of argument {node[0]!r}")

    def _begin_object(self) -> int:
        """Return the place of a list, a dict or an object ahead of what is in it."""
        self._objects.append(None)
        return len(self._objects) - 1

    def _end_object(self, place: int, made: Any) -> Any:
        """Return what is at a place: the one that was made, or an earlier one."""
        first = self._first_of[place]
        if not 0 <= first <= place:
            raise ValueError(f"object {place} is object {first}")
        self._objects[place] = made if first == place else self._objects[first]
        return self._objects[place]

    def _record_class(self, name: str, slots: tuple[str, ...]) -> type:
        kind = self._values.classes.find(name)
        if slot_names(kind) != slots:
            raise _C.Error(
                f"objects of the class '{name}' had slots {list(slots)} when it was saved, and "
                f"have {list(slot_names(kind))}"
            )
        self.by_fields[kind] = slots
        return kind

    @property
    def compared(self) -> ByFields:
        """The classes of objects that are compared by their fields, and which of these are."""
        classes = dict.fromkeys(self.by_fields)
        return ByFields({**classes, **{kind: self._read[kind] for kind in self._with_unread}})

    def _tuple_class(self, name: str) -> type:
        kind = self._values.classes.find(name)
        if not issubclass(kind, tuple):
            raise ValueError(f"{name} is no tuple")
        return kind

    def _tensor(self, content: dict[str, Any]) -> torch.Tensor:
        number = len(self.tensors)
        first = self._same_as[number]
        if not 0 <= first <= number:
            raise ValueError(f"tensor {number} is tensor {first}")
        if first < number:
            tensor = self.tensors[first]
        elif number in self._given:
            tensor = self._given[number]
        else:
            tensor = example_tensor(content)
        self.tensors.append(tensor)
        return tensor


def number_positions(described: dict[str, Any]) -> dict[int, int]:
    """Return where open numbers are, by slot: among the ints and floats of the arguments."""
    numbers = list(_numbers(described))
    return {slot: index for index, slot in enumerate(numbers) if slot is not None}


def _numbers(described: dict[str, Any]) -> Iterator[int | None]:
    def visit(node: list[Any]) -> Iterator[int | None]:
        if node[0] == "open":
            yield node[1]
        elif node[0] == "value":
            value = node[1]
            is_float = isinstance(value, dict) and "float" in value
            if is_float or (isinstance(value, int) and not isinstance(value, bool)):
                yield None
        elif node[0] in ("tuple", "list", "dict", "object"):
            for child in node[-1]:
                yield from visit(child)

    for node in (*described["positional"], *(node for _, node in described["named"])):
        yield from visit(node)


def arguments_to_text(described: dict[str, Any]) -> str:
    """Return arguments in words: (float32[1, 32], flag=True)."""
    parts = [_node_to_text(node) for node in described["positional"]]
    parts += [f"{name}={_node_to_text(node)}" for name, node in described["named"]]
    return f"({', '.join(parts)})"


def _node_to_text(node: list[Any]) -> str:
    match node:
        case ["tensor" | "tensor_of_any_size" as kind, content]:
            sizes = content["sizes"]
            shape = ", ".join("any" if kind != "tensor" else str(size) for size in sizes)
            strides, expected = content["strides"], 1
            is_contiguous = True
            for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
                is_contiguous &= size == 1 or stride == expected
                expected *= size
            text = f"{content['dtype']}[{shape}]"
            if kind == "tensor" and not is_contiguous and 0 not in sizes:
                text += f" strides {strides}"
            if content["device"] != "cpu":
                text += f" on {content['device']}"
            return text + (" requiring a gradient" if content["requires_grad"] else "")
        case ["open", _, content]:
            return "any float" if isinstance(content, dict) else "any int"
        case ["value", {"float": bits}]:
            return repr(float_from_bits(bits))
        case ["value", {**other}]:
            return " ".join(str(part) for item in other.items() for part in item)
        case ["value", content]:
            return repr(content)
        case ["list", nodes]:
            return f"[{', '.join(map(_node_to_text, nodes))}]"
        case ["tuple", name, nodes]:
            inside = ", ".join(map(_node_to_text, nodes)) + ("," if len(nodes) == 1 else "")
            return f"{(name or '').partition(':')[2]}({inside})"
        case ["dict", _, keys, nodes]:
            items = (
                f"{key!r}: {_node_to_text(child)}" for key, child in zip(keys, nodes, strict=True)
            )
            return f"{{{', '.join(items)}}}"
        case ["object", name, keys, slots, nodes]:
            named = zip((*(keys or ()), *slots), nodes, strict=True)
            inside = ", ".join(f"{key}={_node_to_text(child)}" for key, child in named)
            return f"{name.partition(':')[2]}({inside})"
        case ["unread"]:
            return "any"
    return str(node)
