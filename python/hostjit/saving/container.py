# SPDX-License-Identifier: Apache-2.0
"""The layout of a saved file: a header, a manifest in JSON, and members, all with checksums.

    bytes 0 to 7     magic
    bytes 8 to 11    version of the format; these and the numbers below are little-endian
    bytes 12 to 15   0
    bytes 16 to 23   bytes of the manifest
    bytes 24 to 31   bytes of the file
    bytes 32 to 63   SHA-256 of the bytes before and of the manifest
    from byte 64     the manifest, UTF-8; then members, each at a multiple of 64, zeros between them

The manifest's "members" says where they are and what the SHA-256 of each of their pieces is: of
`_PIECE_BYTES`, the last shorter, so that several threads read a large member and check it while it
is in their caches.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from hostjit import _C

__all__ = ["FORMAT", "SavedFile", "opened", "write"]

# Raised when a reader of the former version would misunderstand a file.
FORMAT = 7

_MAGIC = b"hostjit\x1a"
_NUMBERS = struct.Struct("<8sIIQQ")
_HEADER_BYTES = 64
_ALIGNMENT = 64
_PIECE_BYTES = 1 << 20
_MOST_THREADS = 8


def write(
    path: str | os.PathLike[str], manifest: dict[str, Any], members: Mapping[str, Any]
) -> None:
    """Write a file, under another name first: readers see the former one or all of this one.

    `members` are buffers; `manifest` is data for JSON.
    """
    table: dict[str, dict[str, Any]] = {}
    for name, content in members.items():
        view = memoryview(content).cast("B")
        table[name] = {"offset": 0, "bytes": view.nbytes, "sha256": _digests(view)}
    # Offsets are from the end of the manifest, which does not change its length then.
    end = 0
    for entry in table.values():
        entry["offset"] = end
        end = _aligned(end + entry["bytes"])
    text = json.dumps({**manifest, "members": table}, separators=(",", ":")).encode()
    start = _aligned(_HEADER_BYTES + len(text))
    last = max((entry["offset"] + entry["bytes"] for entry in table.values()), default=0)
    numbers = _NUMBERS.pack(_MAGIC, FORMAT, 0, len(text), start + last)
    folder, name = os.path.split(os.path.abspath(os.fspath(path)))
    unfinished = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(numbers + hashlib.sha256(numbers + text).digest() + text)
            for member, content in members.items():
                file.write(bytes(start + table[member]["offset"] - file.tell()))
                file.write(memoryview(content).cast("B"))
            file.write(bytes(start + last - file.tell()))
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


class SavedFile:
    """A file whose header and manifest are as they were written.

    Attributes:
        manifest: what `write` was given.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._threads: ThreadPoolExecutor | None = None
        size = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER_BYTES)
        if header[: len(_MAGIC)] != _MAGIC[: len(header)] or not header:
            raise _C.Error(f"'{path}' is no file that hostjit.save wrote")
        if len(header) < _HEADER_BYTES:
            raise _C.Error(f"'{path}' is cut short: it has {size} bytes")
        _, version, zero, text_bytes, file_bytes = _NUMBERS.unpack_from(header)
        if version > FORMAT:
            raise _C.Error(
                f"'{path}' has format {version}, which is newer than this hostjit's {FORMAT}: "
                "update hostjit, or save it with this one"
            )
        if version < FORMAT:
            raise _C.Error(
                f"'{path}' has format {version}, which is older than this hostjit's {FORMAT}: save "
                "it again with this one"
            )
        if size != file_bytes:
            what = "cut short" if size < file_bytes else "damaged"
            raise _C.Error(f"'{path}' is {what}: it has {size} bytes, its header says {file_bytes}")
        text = file.read(min(text_bytes, size))
        digest = hashlib.sha256(header[: _NUMBERS.size] + text).digest()
        if zero or len(text) != text_bytes or digest != header[_NUMBERS.size :]:
            raise _C.Error(f"'{path}' is damaged: its manifest is not what was written")
        self._start = _aligned(_HEADER_BYTES + text_bytes)
        try:
            self.manifest: dict[str, Any] = json.loads(text)
            self._members: dict[str, dict[str, Any]] = self.manifest["members"]
            self._check_gaps(_HEADER_BYTES + text_bytes, size)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise _C.Error(f"'{path}' is damaged: {error!r}") from error

    def read(self, name: str) -> bytes:
        """Return a member; raises hostjit.Error when it is damaged."""
        content = bytearray(self.size(name))
        self.read_into(name, content)
        return bytes(content)

    def size(self, name: str) -> int:
        """Return the bytes of a member."""
        return int(self._members[name]["bytes"])

    def read_into(self, name: str, buffer: Any) -> None:
        """Read a member into memory of its size; raises hostjit.Error when it is damaged."""
        view = memoryview(buffer).cast("B")
        entry = self._members[name]
        start = self._start + entry["offset"]
        descriptor = self._file.fileno()

        def read_piece(begin: int) -> str:
            piece = view[begin : begin + _PIECE_BYTES]
            os.preadv(descriptor, [piece], start + begin)
            return _digest(piece)

        begins = range(0, view.nbytes, _PIECE_BYTES)
        if list(self._map(read_piece, begins)) != entry["sha256"]:
            raise _C.Error(f"it is damaged: '{name}' is not what was written")

    def close(self) -> None:
        """Stop its threads; its file is its opener's."""
        if self._threads is not None:
            self._threads.shutdown()

    def _map(self, function: Callable[[int], str], begins: range) -> Iterable[str]:
        """Call a function that lets other threads run with each number, on all CPUs of ours."""
        threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
        if len(begins) < 2 or threads < 2:
            return map(function, begins)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(threads, "hostjit-load")
        return self._threads.map(function, begins)

    def _check_gaps(self, end: int, size: int) -> None:
        """Raise unless members follow one another with nothing but zeros between them."""
        for entry in sorted(self._members.values(), key=lambda entry: int(entry["offset"])):
            offset = self._start + entry["offset"]
            self._file.seek(end)
            gap = offset - end
            if not 0 <= gap < _ALIGNMENT or any(self._file.read(gap)):
                raise ValueError("there is something between its members")
            end = offset + entry["bytes"]
        if self._members and end != size:
            raise ValueError("its members don't end where it ends")


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[SavedFile]:
    """Open a file that `write` wrote; raises OSError, and hostjit.Error for any other content."""
    with open(path, "rb") as file:
        saved = SavedFile(file, os.fspath(path))
        with contextlib.closing(saved):
            yield saved


def _digests(view: memoryview) -> list[str]:
    begins = range(0, view.nbytes, _PIECE_BYTES)
    return [_digest(view[begin : begin + _PIECE_BYTES]) for begin in begins]


def _digest(view: memoryview) -> str:
    return hashlib.sha256(view).hexdigest()


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT
