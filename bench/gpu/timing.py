# SPDX-License-Identifier: Apache-2.0
"""Three times of a call on a device: of its host, until its result is there, and of the device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from measure import Timed

# The host is timed for so long on an idle device: a queue of a thousand launches makes it wait.
HOST_SECONDS = 5e-4
MOST_CALLS = 64
# A call until its result is there is repeated for so long.
SYNCHRONISED_SECONDS = 2e-3
# The device is kept busy before the calls whose device time is measured, so that the host is done
# first: cycles of the fastest clock that a GPU has.
CYCLES_PER_SECOND = 2.2e9


@dataclass(frozen=True)
class Device:
    """A device by PyTorch's name, and how to wait for it."""

    name: str

    @property
    def is_cuda(self) -> bool:
        return self.name.startswith("cuda")

    def synchronise(self) -> None:
        """Wait for the current stream; raises what a kernel did wrong."""
        if self.is_cuda:
            torch.cuda.current_stream().synchronize()


class HostTimed(Timed):
    """Until the call returns, with a queue that is short: what the host does."""

    def __init__(self, device: Device, function: Callable[..., Any], arguments: Sequence[Any]):
        super().__init__(function, arguments)
        self._device = device

    def settle(self) -> None:
        for _ in range(5):
            self._calls, seconds = self.batch()
            self._calls = max(1, min(MOST_CALLS, int(HOST_SECONDS / seconds)))

    def batch(self) -> tuple[int, float]:
        self._timer.timeit(1)
        self._device.synchronise()
        seconds = self._timer.timeit(self._calls)
        self._device.synchronise()
        return self._calls, seconds / self._calls


class SynchronisedTimed(Timed):
    """Until the result of each call is there."""

    def __init__(self, device: Device, function: Callable[..., Any], arguments: Sequence[Any]):
        wait = device.synchronise
        if device.is_cuda:
            wait = torch.cuda.current_stream().synchronize

        def call(*arguments: Any) -> None:
            function(*arguments)
            wait()

        super().__init__(call, arguments)

    def settle(self) -> None:
        for _ in range(5):
            seconds = self._timer.timeit(self._calls) / self._calls
            self._calls = max(1, min(MOST_CALLS, int(SYNCHRONISED_SECONDS / seconds)))


class DeviceTimed(Timed):
    """Between events around calls that were all queued before the first began."""

    def __init__(self, device: Device, function: Callable[..., Any], arguments: Sequence[Any]):
        super().__init__(function, arguments)
        self._device = device
        self._begin = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._cycles = 0

    def settle(self) -> None:
        host = HostTimed(self._device, self._timer.timeit, (1,))
        host.settle()
        _, seconds = host.batch()
        self._calls = max(1, min(10, int(HOST_SECONDS / seconds)))
        self._cycles = int((1.5 * seconds * self._calls + 5e-5) * CYCLES_PER_SECOND)

    def batch(self) -> tuple[int, float]:
        self._device.synchronise()
        torch.cuda._sleep(self._cycles)
        self._begin.record()
        self._timer.timeit(self._calls)
        self._end.record()
        self._end.synchronize()
        return self._calls, self._begin.elapsed_time(self._end) * 1e-3 / self._calls
