# SPDX-License-Identifier: Apache-2.0
"""`hostjit.Kernel`: a kernel that the user brings, as something that can be launched."""

from __future__ import annotations

import functools
import hashlib
import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from hostjit import _C
from hostjit.kernels.cuda.nvrtc import compile_function
from hostjit.launching.parameters import Parameters
from hostjit.launching.providers import Code

__all__ = ["Kernel", "kernel_of", "sizes_of"]

_numbers = itertools.count()
_kernels: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class Kernel:
    """A kernel with what its launches need to know; made by `hostjit.kernel`, and never changed.

    Attributes:
        entry: the name of the function.
        device: where it runs, "cpu" or "cuda".
        parameters: what the machine passes for its parameters, such as "ptr" and "i64".
        dtypes: of each pointer to elements of one dtype that dtype, else None.
        writes: positions of the pointers whose memory it writes.
        block: threads of a block in three dimensions, or None: each launch says.
        shared_memory: dynamic shared memory of a block in bytes.
        over_range: on the CPU, whether it does a range of items.
        strided: whether its pointers may be of tensors that are not contiguous.
        number: by which operators refer to it.
    """

    entry: str
    device: str
    parameters: tuple[str, ...]
    dtypes: tuple[Any, ...]
    writes: tuple[int, ...]
    block: tuple[int, ...] | None
    shared_memory: int
    over_range: bool
    strided: bool
    number: int
    hidden: int
    _words: tuple[str, ...]
    _code: Code

    def __init__(
        self,
        code: Code,
        parameters: tuple[str, ...],
        writes: tuple[int, ...],
        block: tuple[int, ...] | None,
        shared_memory: int,
        over_range: bool = False,
        strided: bool = False,
    ) -> None:
        found = Parameters(f"kernel '{code.entry}'", parameters)
        facts: dict[str, Any] = {
            "entry": code.entry,
            "device": "cpu" if code.is_cpu else "cuda",
            "parameters": found.types,
            "dtypes": tuple(found.dtypes),
            "writes": writes,
            "block": block,
            "shared_memory": shared_memory,
            "over_range": over_range,
            "strided": strided,
            "hidden": code.hidden,
            "_words": parameters,
            "_code": code,
        }
        with _lock:
            facts["number"] = next(_numbers)
            vars(self).update(facts)
            _kernels[self.number] = self

    def __setattr__(self, name: str, value: Any) -> None:
        # Compiled functions do not look whether a kernel is as it was.
        raise AttributeError(f"kernel '{self.entry}' can't be changed: make another one")

    def __repr__(self) -> str:
        return f"<hostjit.Kernel '{self.entry}' ({', '.join(self._words)})>"

    def __reduce__(self) -> Any:
        if self._code.is_address:
            what, instead = "CUfunction", "PTX or cubin"
            if self.device == "cpu":
                what, instead = "C function", "LLVM IR"
            raise TypeError(
                f"kernel '{self.entry}' is a {what} of this process, which can't be pickled: "
                f"make it of its {instead}"
            )
        launched = (self.block, self.shared_memory, self.over_range, self.strided)
        return Kernel, (self._code, self._words, self.writes, *launched)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of all parameters, also of those that are passed behind the user's."""
        return (*self.parameters, *("i64",) * self.hidden)

    @functools.cached_property
    def name(self) -> str:
        """What programs call it, in any process; a C function shares it with those of its form."""
        word = "".join(c if c.isalnum() or c == "_" else "_" for c in self.entry)
        code: Any = None if self.device == "cpu" and self._code.is_address else self._code
        content = repr((code, self.parameters, self.over_range))
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f"{word}_{digest[:8]}"

    def has_code_of(self, other: Kernel) -> bool:
        """Whether one is the other, or a copy of it."""
        return self._code == other._code

    def image(self, arch: str) -> tuple[str, str | bytes, str]:
        """The language, the code, and the name of the function there, for a GPU like "sm_90"."""
        code = self._code
        if code.language != "cuda":
            return code.language, code.code, code.entry
        assert isinstance(code.code, str)
        ptx, lowered = compile_function(code.code, code.entry, arch, code.options)
        return "ptx", ptx, lowered

    @functools.cached_property
    def loaded(self) -> _C.DeviceKernel:
        """The kernel for launches on CUDA outside of compiled functions."""
        from hostjit.lowering.cuda_launches import architecture

        language, code, entry = self.image(architecture())
        return _C.DeviceKernel(self.entry, code, language, entry, list(self.types))

    @functools.cached_property
    def on_host(self) -> _C.HostKernel:
        """The kernel for launches on the CPU outside of compiled functions."""
        code = self._code
        return _C.HostKernel(
            code.entry,
            str(code.code),
            code.language,
            code.entry,
            list(self.types),
            self.over_range,
            code.owner,
        )

    def add_to(self, program: _C.Program, name: str, types: Sequence[str]) -> None:
        """Have a program bring the kernel, by a name, with parameters of these types."""
        from hostjit.lowering.cuda_launches import architecture

        is_cpu = self.device == "cpu"
        language, code, entry = self.image("" if is_cpu else architecture())
        owner = self._code.owner
        program.add_kernel(name, code, language, entry, list(types), owner)


def kernel_of(number: int) -> Kernel:
    """The kernel that an operator refers to."""
    found = _kernels.get(number)
    if found is None:
        raise RuntimeError(f"hostjit.launch: there is no kernel {number} any more")
    return found


def sizes_of(sizes: Any, what: str) -> tuple[Any, ...]:
    """One to three sizes, as three."""
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{what} has {len(given)} sizes, expected 1 to 3")
    return given + (1,) * (3 - len(given))
