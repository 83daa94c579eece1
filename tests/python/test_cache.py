# SPDX-License-Identifier: Apache-2.0
"""The object cache: what is found, what is refused, and that two processes share it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hostjit

MODEL = """
def model(x):
    return torch.tanh(x) * 2 + x.cumsum(0)
"""
PROCESS = (
    "import json, torch, hostjit"
    + MODEL
    + """
with torch.no_grad():
    fast, x = hostjit.compile(model), torch.randn(3, 8)
    torch.testing.assert_close(fast(x), model(x))
print(json.dumps({**hostjit.cache.report(), "timings": fast.timings()}))
"""
)


def make_model(text: str = MODEL) -> Callable[[torch.Tensor], torch.Tensor]:
    names: dict[str, Any] = {"torch": torch}
    exec(compile(text, "model.py", "exec"), names)
    model: Callable[[torch.Tensor], torch.Tensor] = names["model"]
    return model


def counts(directory: Path | str, text: str = MODEL, rows: int = 3) -> dict[str, int]:
    """Compile and run the model, and return what the cache counted meanwhile."""
    model, x = make_model(text), torch.randn(rows, 8)
    before: dict[str, Any] = {**hostjit.cache.report()}
    with torch.no_grad(), hostjit.knobs(cache_directory=str(directory)):
        torch.testing.assert_close(hostjit.compile(model)(x), model(x))
        after: dict[str, Any] = {**hostjit.cache.report()}
    names = ("hits", "misses", "rejected", "stored", "evicted")
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


MISS = {"misses": 1, "stored": 1}
REJECTED = {"misses": 1, "rejected": 1, "stored": 1}
HIT = {"hits": 1}


def test_code_is_found_again(tmp_path: Path) -> None:
    assert counts(tmp_path / "cache") == MISS
    assert counts(tmp_path / "cache") == HIT
    assert hostjit.cache.report()["directory"] == os.environ["HOSTJIT_CACHE_DIR"]


def test_moving_a_model_in_its_file_keeps_its_code(tmp_path: Path) -> None:
    assert counts(tmp_path / "cache") == MISS
    assert counts(tmp_path / "cache", "\n\n" + MODEL) == HIT


def test_another_program_is_another_entry(tmp_path: Path) -> None:
    assert counts(tmp_path / "cache") == MISS
    assert counts(tmp_path / "cache", MODEL.replace("* 2", "* 3")) == MISS
    assert counts(tmp_path / "cache", rows=4) == MISS


def test_off_leaves_nothing(tmp_path: Path) -> None:
    with hostjit.knobs(disable="object_cache"):
        assert counts(tmp_path / "cache") == {}
        assert hostjit.cache.report()["directory"] == ""
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("damage", ["cut", "change", "empty"])
def test_damaged_entries_are_replaced(tmp_path: Path, damage: str) -> None:
    counts(tmp_path / "cache")
    (entry,) = (tmp_path / "cache").iterdir()
    content = entry.read_bytes()
    changed = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    entry.write_bytes({"cut": content[:-7], "change": changed, "empty": b""}[damage])
    assert counts(tmp_path / "cache") == REJECTED
    assert "is damaged" in hostjit.cache.report()["problem"]
    assert entry.read_bytes() == content
    assert counts(tmp_path / "cache") == HIT


def test_nothing_is_read_where_others_may_write(tmp_path: Path) -> None:
    counts(tmp_path / "cache")
    (tmp_path / "cache").chmod(0o777)
    assert counts(tmp_path / "cache") == {"misses": 1}
    assert "can be written by other users" in hostjit.cache.report()["problem"]


@pytest.mark.parametrize("directory", ["/dev/null/cache", "/proc/cache"])
def test_a_program_compiles_where_nothing_can_be_kept(directory: str) -> None:
    assert counts(directory) == {"misses": 1}
    assert f"can't make {directory}" in hostjit.cache.report()["problem"]


def test_the_users_directory_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert counts("") == MISS
    assert (tmp_path / "xdg" / "hostjit").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert counts("") == MISS
    assert (tmp_path / "home" / ".cache" / "hostjit").stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("HOME", "")
    assert counts("") == {}


def test_processes_share_it(tmp_path: Path) -> None:
    def start(seed: str) -> subprocess.Popen[str]:
        cache = {"HOSTJIT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONHASHSEED": seed}
        return subprocess.Popen(
            [sys.executable, "-c", PROCESS],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **cache},
        )

    def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(process.communicate()[0])
        return report

    together = [finish(process) for process in [start("1"), start("2")]]
    assert all(report["hits"] + report["stored"] == 1 for report in together)
    # Neither addresses nor hashes of strings are in the key or in the code.
    after = finish(start("3"))
    assert after["hits"] == 1
    assert after["timings"]["emit"] == after["timings"]["optimize"] == 0
    assert after["timings"]["cache"] > 0
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_dumps_are_written_for_cached_code(tmp_path: Path) -> None:
    counts(tmp_path / "cache")
    with hostjit.knobs(dump="llvm_ir,asm", dump_directory=str(tmp_path / "dump")):
        assert counts(tmp_path / "cache") == HIT
    texts = [path.read_text() for path in sorted((tmp_path / "dump").iterdir())]
    assert len(texts) == 2 and "define" in texts[0] and ".text" in texts[1]
