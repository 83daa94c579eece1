# SPDX-License-Identifier: Apache-2.0
"""What every peer provides."""

import importlib.metadata
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from workloads import Workload


@dataclass(frozen=True)
class Prepared:
    """A workload as a user of the peer would hold it.

    function: what is timed. It takes the inputs as positional arguments, in the peer's own kind of
        array, and its result is complete when it returns.
    from_torch: makes such an array; not timed.
    to_torch: makes tensors of the result, for the comparison with eager; not timed.
    enqueue: the same call without waiting for its result, where `function` waits.
    """

    function: Callable[..., Any]
    from_torch: Callable[[Tensor], Any] = lambda tensor: tensor
    to_torch: Callable[[Any], Tensor] = lambda result: result
    enqueue: Callable[..., Any] | None = None


class Peer(ABC):
    """One way to run a PyTorch model.

    name: what `--peers` and the tables say.
    description: how it is called; one line.
    requires: the packages that it needs beside PyTorch, as they are imported.
    """

    name: str
    description: str
    requires: tuple[str, ...] = ()

    def unavailable(self) -> str | None:
        """Return why the peer cannot run here, or None."""
        missing = [package for package in self.requires if not importlib.util.find_spec(package)]
        return f"not installed: {', '.join(missing)}" if missing else None

    def version(self) -> str | None:
        """Return the version of the peer's first package; None for PyTorch's own ways."""
        if not self.requires:
            return None
        return importlib.metadata.version(self.requires[0])

    @abstractmethod
    def prepare(self, workload: Workload, threads: int) -> Prepared:
        """Compile or load the workload. Runs with gradients disabled, like every call."""
