# SPDX-License-Identifier: Apache-2.0
"""The tensors that programs hold: parameters, buffers and constants, as bytes of their memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from hostjit import _C
from hostjit.saving.container import SavedFile

__all__ = ["TensorReader", "TensorWriter", "tensor_name"]


class TensorWriter:
    """Numbers tensors, and collects their memory: each storage once, so that views stay views.

    Args:
        names: of tensors that have some.
        with_named: write the memory of those, too.
    """

    def __init__(self, names: Mapping[str, torch.Tensor], with_named: bool) -> None:
        self._names: dict[int, list[str]] = {}
        self._named: dict[int, torch.Tensor] = {}
        for name, tensor in names.items():
            self._names.setdefault(id(tensor), []).append(name)
            self._named[id(tensor)] = tensor
        self._with_named = with_named
        self._numbers: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []
        self.described: list[dict[str, Any]] = []
        self.members: dict[str, Any] = {}

    def add(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor."""
        if id(tensor) not in self._numbers:
            self._numbers[id(tensor)] = len(self.tensors)
            self.tensors.append(tensor)
            self.described.append(self._describe(tensor))
        return self._numbers[id(tensor)]

    def add_with_gradient(self, tensor: torch.Tensor) -> int:
        """Return the number of a tensor whose `.grad`, if it has one, is part of the file."""
        number = self.add(tensor)
        entry = self.described[number]
        if tensor.grad is not None and entry["gradient"] is None:
            entry["gradient"] = self._describe(tensor.grad, entry["written"])
        return number

    def add_by_id(self, address: int) -> int | None:
        """Return the number of a tensor that was added or has a name; None for others."""
        if address in self._named:
            return self.add(self._named[address])
        return self._numbers.get(address)

    def _describe(self, tensor: torch.Tensor, written: bool | None = None) -> dict[str, Any]:
        names = self._names.get(id(tensor), []) if written is None else []
        what = f"tensor '{names[0]}'" if names else "a constant"
        if written is None:
            written = self._with_named or not names
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise _C.Error(f"{what} is a {type(tensor).__qualname__}, expected a plain tensor")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise _C.Error(f"{what} is not dense")
        if tensor.is_conj() or tensor.is_neg():
            raise _C.Error(f"{what} is conjugated or negated lazily")
        return {
            "names": names,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "device": str(tensor.device),
            "sizes": list(tensor.shape),
            "strides": list(tensor.stride()),
            "offset": tensor.storage_offset(),
            "requires_grad": tensor.requires_grad,
            "parameter": type(tensor) is torch.nn.Parameter,
            "inference": tensor.is_inference(),
            "storage": self._add_storage(tensor, written=written),
            "written": written,
            "gradient": None,
        }

    def _add_storage(self, tensor: torch.Tensor, written: bool) -> str:
        storage = tensor.untyped_storage()
        number = self._storages.setdefault(storage._cdata, len(self._storages))
        name = f"memory/{number}"
        if written and name not in self.members:
            with torch.inference_mode(False), torch.no_grad():
                whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                self.members[name] = _memory(whole.cpu())
        return name


class TensorReader:
    """Makes the tensors of a file.

    Args:
        file: which is read at once.
        described: its tensors.
        given: tensors by name that take the place of those.

    Attributes:
        tensors: in their order.
        named: by name.
        given: positions of those that were given.
    """

    def __init__(
        self,
        file: SavedFile,
        described: Sequence[dict[str, Any]],
        given: Mapping[str, torch.Tensor],
    ) -> None:
        self._file = file
        self._storages: dict[str, torch.UntypedStorage] = {}
        self.tensors: list[torch.Tensor] = []
        self.named: dict[str, torch.Tensor] = {}
        chosen = [next((name for name in e["names"] if name in given), None) for e in described]
        missing = [
            entry["names"][0]
            for entry, name in zip(described, chosen, strict=True)
            if name is None and not entry["written"]
        ]
        if missing:
            raise _C.Error(
                f"it was saved without its parameters: give {_listed(missing)} as "
                "hostjit.load(..., parameters=...), a dict or a module that has them"
            )
        _check_shared(described, chosen)
        self.given = frozenset(number for number, name in enumerate(chosen) if name is not None)
        for entry, name in zip(described, chosen, strict=True):
            if name is None:
                tensor = self._make(entry)
                if entry["gradient"] is not None:
                    tensor.grad = self._make(entry["gradient"])
            else:
                _check_same(given, [name for name in entry["names"] if name in given])
                tensor = _fitting(given[name], entry, name)
            self.tensors.append(tensor)
            self.named.update(dict.fromkeys(entry["names"], tensor))

    def _make(self, entry: dict[str, Any]) -> torch.Tensor:
        dtype, device = _dtype(entry["dtype"]), torch.device(entry["device"])
        sizes, strides, offset = entry["sizes"], entry["strides"], entry["offset"]
        with torch.inference_mode(bool(entry["inference"])), torch.no_grad():
            storage = self._storage(entry["storage"], device)
            steps = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
            last = 0 if 0 in sizes else offset + steps + 1
            if min([*sizes, *strides, offset, 0]) < 0 or last * dtype.itemsize > storage.nbytes():
                raise ValueError("a tensor is larger than its memory")
            tensor = torch.empty(0, dtype=dtype, device=device).set_(
                storage, offset, sizes, strides
            )
            if entry["parameter"]:
                return torch.nn.Parameter(tensor, requires_grad=entry["requires_grad"])
            return tensor.requires_grad_() if entry["requires_grad"] else tensor

    def _storage(self, name: str, device: torch.device) -> torch.UntypedStorage:
        if name not in self._storages:
            memory = torch.empty(self._file.size(name), dtype=torch.uint8, device="cpu")
            self._file.read_into(name, _memory(memory))
            self._storages[name] = memory.to(device).untyped_storage()
        return self._storages[name]


def _check_shared(described: Sequence[dict[str, Any]], chosen: Sequence[str | None]) -> None:
    """Raise unless of tensors that share memory all are given or none is."""
    pairs = list(zip(described, chosen, strict=True))
    given = {entry["storage"] for entry, name in pairs if name is not None}
    split = {entry["storage"] for entry, name in pairs if name is None} & given
    if split:
        shared = [e["names"][0] for e in described if e["storage"] in split and e["names"]]
        raise _C.Error(f"{_listed(shared)} share memory with what is not given: give all of it")


def _check_same(given: Mapping[str, torch.Tensor], names: Sequence[str]) -> None:
    """Raise unless these names are of one tensor, or of views of all of it."""

    def place(tensor: torch.Tensor) -> tuple[Any, ...]:
        return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()

    for name in names[1:]:
        if given[name] is not given[names[0]] and place(given[name]) != place(given[names[0]]):
            raise _C.Error(
                f"'{names[0]}' and '{name}' are one tensor of the saved program, and two of those "
                "that are given"
            )


def tensor_name(described: dict[str, Any]) -> str:
    """Return what a tensor is called in messages."""
    return described["names"][0] if described["names"] else "a constant"


def _fitting(tensor: torch.Tensor, entry: dict[str, Any], name: str) -> torch.Tensor:
    """Return the tensor, or one that shares its memory and needs a gradient as the saved one."""
    expected = {
        "dtype": _dtype(entry["dtype"]),
        "device": torch.device(entry["device"]),
        "sizes": tuple(entry["sizes"]),
        "strides": tuple(entry["strides"]),
    }
    found = {
        "dtype": tensor.dtype,
        "device": tensor.device,
        "sizes": tuple(tensor.shape),
        "strides": tensor.stride(),
    }
    for what, value in expected.items():
        if found[what] != value:
            raise _C.Error(
                f"parameter '{name}' has {what} {found[what]}, the saved program takes {value}"
            )
    if tensor.requires_grad == entry["requires_grad"]:
        return tensor
    shared = tensor.detach()
    if entry["parameter"]:
        return torch.nn.Parameter(shared, requires_grad=entry["requires_grad"])
    return shared.requires_grad_(entry["requires_grad"])


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch.{name} is no dtype")
    return found


def _memory(tensor: torch.Tensor) -> Any:
    """The memory of a contiguous tensor of bytes on the CPU, as a buffer that keeps the tensor."""
    if tensor.numel() == 0:
        return bytearray()
    memory = (ctypes.c_uint8 * tensor.numel()).from_address(tensor.data_ptr())
    memory.tensor = tensor  # type: ignore[attr-defined]
    return memory


def _listed(names: Iterable[str]) -> str:
    names = [f"'{name}'" for name in names]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
