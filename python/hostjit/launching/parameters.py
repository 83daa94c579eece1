# SPDX-License-Identifier: Apache-2.0
"""What the parameters of a user's kernel are: words such as "ptr", "f32*" and "i64"."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hostjit import _C

__all__ = ["Parameters", "parameters_of"]

_MACHINE = ("ptr", "i8", "i16", "i32", "i64", "f32", "f64")
# A range of items is two of them.
_RANGE = ("i64", "i64")


class Parameters:
    """The parameters of a kernel.

    Attributes:
        words: as the user writes them.
        types: what the machine passes: "ptr", "i8", "i16", "i32", "i64", "f32" or "f64".
        dtypes: of each pointer to elements of one dtype that dtype, else None.
    """

    def __init__(self, who: str, words: Sequence[str]) -> None:
        """Raises ValueError for a word that is none."""
        self.words = tuple(words)
        types: list[str] = []
        self.dtypes: list[torch.dtype | None] = []
        dtypes = _C.torch_dtypes()
        for position, word in enumerate(self.words):
            pointee = word[:-1] if isinstance(word, str) and word.endswith("*") else None
            if word not in _MACHINE and pointee not in dtypes:
                raise ValueError(
                    f"{who}: parameter {position} has type {word!r}, expected one of: "
                    f"{', '.join(_MACHINE)}, or a dtype and a star such as 'f32*'"
                )
            types.append("ptr" if pointee else word)
            self.dtypes.append(dtypes[pointee] if pointee else None)
        self.types = tuple(types)


def parameters_of(
    who: str, given: Sequence[str] | None, found: Sequence[str] | None, *, over_range: bool
) -> Parameters:
    """The parameters of a kernel, without its range of items.

    Args:
        who: the kernel, for messages.
        given: what the user says, if anything.
        found: what the code itself says, if anything, with the range of items.
        over_range: whether there is one.

    Raises: ValueError where one says nothing, or not what the other says.
    """
    if found is not None and over_range:
        if tuple(found[-2:]) != _RANGE:
            raise ValueError(
                f"{who}: its parameters are {_listed(found)}, expected two of type i64 at the end: "
                "the first item to do and the end of them (over_range)"
            )
        found = found[:-2]
    if given is None:
        if found is None:
            raise ValueError(f"{who}: parameters is missing, expected the type of each parameter")
        return Parameters(who, found)
    parameters = Parameters(who, given)
    if found is not None and parameters.types != Parameters(who, found).types:
        raise ValueError(
            f"{who}: parameters are {_listed(given)}, but the function takes {_listed(found)}"
        )
    return parameters


def _listed(words: Sequence[str]) -> str:
    return f"[{', '.join(words)}]"
