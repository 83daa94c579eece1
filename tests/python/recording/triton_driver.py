# SPDX-License-Identifier: Apache-2.0
"""A driver of Triton for a GPU that does not exist: launches are noted, and may be emulated."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

__all__ = ["Launch", "TritonDriver", "triton_without_a_gpu"]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A launch that Triton made.

    Attributes:
        source: what was compiled, an ASTSource.
        grid: three numbers of blocks.
        arguments: by name.
    """

    source: Any
    grid: tuple[int, int, int]
    arguments: dict[str, Any]


class TritonDriver:
    """Devices of CUDA that do not exist.

    Attributes:
        launches: what Triton launched on them, in order.
        emulations: by the name of a kernel, what is called for a launch.
        measured: seconds that configurations are taken to take, the first ones last.
    """

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.emulations: dict[str, Callable[[Launch], None]] = {}
        self.measured: list[float] = []
        self.utils = self

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 1 << 17}

    def load_binary(
        self, name: str, kernel: bytes, shared: int, device: int
    ) -> tuple[Any, int, int, int, int]:
        return object(), 1, 16, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        def launch(x: int, y: int, z: int, *rest: Any) -> None:
            names = list(source.signature)
            arguments = dict(zip(names, rest[-len(names) :], strict=True))
            launched = Launch(source, (x, y, z), arguments)
            now = driver.active  # Triton keeps what this returns
            now.launches.append(launched)
            with torch.no_grad():
                now.emulations.get(source.fn.__name__, lambda _: None)(launched)

        return launch

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        def measure(call: Callable[[], Any], quantiles: Sequence[float]) -> Sequence[float]:
            call()
            return [self.measured.pop()] * len(quantiles)

        return measure


def _address(tensor: torch.Tensor) -> int:
    """Where a fake tensor is; memory begins at `address`, an attribute of it, or at a page."""
    begin: int = getattr(tensor, "address", 1 << 20)
    return begin + tensor.storage_offset() * tensor.element_size()


@contextlib.contextmanager
def triton_without_a_gpu() -> Iterator[TritonDriver]:
    """Have Triton launch on devices that do not exist, fake tensors too."""
    found = TritonDriver()
    with (
        mock.patch.object(type(driver), "active", found),
        mock.patch.object(FakeTensor, "data_ptr", _address, create=True),
    ):
        yield found
