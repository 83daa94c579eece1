# SPDX-License-Identifier: Apache-2.0
"""PTX on disk, for later processes: beside the object cache, with its rules for what is trusted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

__all__ = ["read", "write"]

# Together some 100 MB; the files that were written longest ago go first.
_MOST_FILES = 4096


def read(key: str) -> str | None:
    """The text that was kept under a key; None if there is none that only this user can write."""
    folder = _folder()
    if folder is None:
        return None
    try:
        descriptor = os.open(folder / f"{key}.ptx", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            if not _is_private(os.fstat(file.fileno())):
                return None
            digest, _, text = file.read().partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest == _digest(text) else None


def write(key: str, text: str) -> None:
    """Keep a text; nothing happens where that is not possible."""
    folder = _folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        descriptor, unfinished = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{_digest(text)}\n{text}")
        os.replace(unfinished, folder / f"{key}.ptx")
        _trim(folder)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _folder() -> Path | None:
    """The folder, made if missing; None while the object cache is off or others may write there."""
    from hostjit import cache  # the core, which kernels do without otherwise

    directory = cache.report()["directory"]
    if not directory:
        return None
    folder = Path(directory) / "ptx"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder if _is_private(folder.lstat()) else None
    except OSError:
        return None


def _is_private(status: os.stat_result) -> bool:
    kind = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    return kind and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _trim(folder: Path) -> None:
    files = list(folder.iterdir())
    if len(files) > _MOST_FILES:
        files.sort(key=lambda file: file.stat().st_mtime)
        for file in files[: len(files) - _MOST_FILES]:
            file.unlink(missing_ok=True)
