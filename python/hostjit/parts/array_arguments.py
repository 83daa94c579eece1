# SPDX-License-Identifier: Apache-2.0
"""Arguments with arrays of NumPy in them, by themselves or in dicts, lists and tuples.

Outside of a program, tensors over the same memory take the place of the arrays; inside, arrays are
made of these, and containers like those that the caller has.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch

from hostjit.capturing.arguments import holds_array

__all__ = ["GivenArrays", "MadeArrays", "Place", "can_open"]

# What is an array in a value: True for one itself, or the places of a container in which some are.
Inside = Any
Place = tuple[int | str, Inside]
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None)})


def can_open(value: Any) -> bool:
    """Tell whether tensors may take the place of arrays in a container."""
    if type(value) is dict:
        return all(type(key) is str for key in value)
    return type(value) is tuple or type(value) is list


class GivenArrays:
    """Puts tensors in the places of arrays: one for each array, and one container for each."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, tuple[Any, Inside]]] = []

    def open(self, value: Any) -> tuple[Any, Inside]:
        """Return a value with tensors for its arrays, and where these are; () if there are none.

        Raises ValueError or TypeError for an array that no tensor can be over, for numbers of NumPy
        and for arrays in other containers.
        """
        is_array = type(value) is numpy.ndarray
        if not is_array and not can_open(value):
            if type(value) not in _PLAIN and holds_array((value,), {}):
                raise TypeError(f"an argument is of NumPy or holds it ({type(value).__qualname__})")
            return value, ()
        for known, found in self._known:
            if known is value:
                return found
        found = (_tensor_of(value), True) if is_array else self._open_container(value)
        self._known.append((value, found))
        return found

    def _open_container(self, value: Any) -> tuple[Any, Inside]:
        items = value.items() if type(value) is dict else enumerate(value)
        opened = [(key, *self.open(item)) for key, item in items]
        inside = tuple([(key, where) for key, _, where in opened if where])
        if not inside:
            return value, ()
        if type(value) is dict:
            return {key: item for key, item, _ in opened}, inside
        return type(value)([item for _, item, _ in opened]), inside


class MadeArrays:
    """The same backwards, in code that Dynamo follows.

    Attributes:
        arrays: those made: of which tensors, and the paths to their places.
    """

    def __init__(self, places: tuple[Place, ...]) -> None:
        self._places = dict(places)
        self.arrays: list[tuple[torch.Tensor, Any, list[int | str]]] = []
        self._containers: list[tuple[Any, Any, list[Any]]] = []

    def arguments(self, args: tuple[Any, ...]) -> list[Any]:
        """Return positional arguments with arrays."""
        return [
            self._made(x, self._places[i], [i]) if i in self._places else x
            for i, x in enumerate(args)
        ]

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return keyword arguments with arrays."""
        return {
            k: self._made(x, self._places[k], [k]) if k in self._places else x
            for k, x in kwargs.items()
        }

    def _made(self, value: Any, inside: Inside, path: list[int | str]) -> Any:
        if inside is True:
            for known, array, _ in self.arrays:
                if known is value:
                    return array
            array = value.numpy()
            self.arrays.append((value, array, path))
            return array
        for known, container, _ in self._containers:
            if known is value:
                return container
        where = dict(inside)
        made: Any
        if isinstance(value, dict):
            made = {
                k: self._made(x, where[k], [*path, k]) if k in where else x
                for k, x in value.items()
            }
        else:
            items = [
                self._made(x, where[i], [*path, i]) if i in where else x
                for i, x in enumerate(value)
            ]
            made = tuple(items) if isinstance(value, tuple) else items
        self._containers.append((value, made, _items(made)))
        return made

    def check_unchanged(self) -> None:
        """Raise where the code has changed a container: it is not the caller's."""
        for _, container, before in self._containers:
            now = _items(container)
            same = len(now) == len(before)
            if not same or not all(a is b for a, b in zip(now, before, strict=True)):
                raise TypeError("a dict or list with arrays of NumPy in it is changed")

    def check_not_given(self, value: Any) -> None:
        """Raise where a value is such a container."""
        for _, container, _ in self._containers:
            if value is container:
                raise TypeError("a dict, list or tuple with arrays of NumPy in it is returned")


def _items(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [*container.keys(), *container.values()]
    return list(container)


def _tensor_of(array: numpy.ndarray[Any, Any]) -> torch.Tensor:
    """Return the tensor over an array. Raises ValueError or TypeError."""
    if not array.flags.writeable:
        raise ValueError("PyTorch would warn of an array that is not to be written")
    return torch.from_numpy(array)
