# SPDX-License-Identifier: Apache-2.0
"""The loops of floor.cpp as things to time: what the driver alone costs."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch
from measure import Timed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KERNEL = (HERE / "add_one.ptx").read_text()
ENTRY = "add_one"
# Floats of the buffers that the kernel reads and writes, one per thread of its only block.
ELEMENTS = 128
LAUNCHES = 100

# How often a loop is done in one batch; each is short against the queue of the device.
REPETITIONS = {
    "launch": 1,
    "launch_ex": 1,
    "launch_ex_synchronised": 5,
    "graph_launch": 5,
    "graph_launch_synchronised": 5,
    "set_one_node": 100,
    "set_every_node": 5,
    "set_one_node_and_launch": 5,
    "event_record": 100,
    "stream_wait_event": 100,
}


class Floor:
    """The library, built for this run, with its kernel loaded and its graph made."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(build()))
        self._library.floor_error.restype = ctypes.c_char_p
        self._library.floor_open.restype = ctypes.c_void_p
        self._library.floor_seconds.restype = ctypes.c_double
        self._buffers = torch.zeros(2, ELEMENTS, device="cuda")
        self._floor = ctypes.c_void_p(
            self._library.floor_open(
                KERNEL.encode(),
                ENTRY.encode(),
                *(ctypes.c_uint64(buffer.data_ptr()) for buffer in self._buffers),
                ctypes.c_int64(ELEMENTS),
                ctypes.c_int32(LAUNCHES),
            )
        )
        if not self._floor:
            raise RuntimeError(f"floor.cpp: {self._library.floor_error().decode()}")

    def seconds(self, loop: str, own_stream: bool) -> float:
        """Return the seconds of one round of a loop."""
        count = REPETITIONS[loop]
        total: float = self._library.floor_seconds(
            self._floor, loop.encode(), ctypes.c_int32(own_stream), ctypes.c_int32(count)
        )
        if total < 0:
            raise RuntimeError(f"floor.cpp: {self._library.floor_error().decode()}")
        return total / count


class FloorTimed(Timed):
    """One loop of the floor. The clock is read in C++, around nothing but the loop."""

    def __init__(self, floor: Floor, loop: str, own_stream: bool) -> None:
        super().__init__(lambda: floor.seconds(loop, own_stream), ())
        self._measure = lambda: floor.seconds(loop, own_stream)
        self._calls = REPETITIONS[loop]

    def settle(self) -> None:
        for _ in range(3):
            self._measure()

    def batch(self) -> tuple[int, float]:
        return self._calls, self._measure()


def build() -> Path:
    """Compile floor.cpp with the declarations of the driver that hostjit has."""
    library = Path(tempfile.mkdtemp(prefix="hostjit-floor-")) / "libfloor.so"
    sources = [HERE / "floor.cpp", ROOT / "csrc/runtime/cuda_driver.cpp"]
    sources += [ROOT / "csrc/support/check.cpp"]
    options = ["-std=c++20", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'csrc'}"]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *options, *map(str, sources), "-ldl", "-o", str(library)], check=True)
    return library
