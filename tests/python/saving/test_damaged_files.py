# SPDX-License-Identifier: Apache-2.0
"""Files that are cut short, changed, older, newer or from elsewhere: errors, or compiled again."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hostjit
from hostjit.saving import container

X = torch.ones(1, 3)


def _compiled() -> Any:
    compiled = hostjit.compile(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    with torch.no_grad():
        compiled(X)
    return compiled


def _recorded() -> Any:
    """With all that a recording may have: values that were read, gradients, numbers, a step."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    @hostjit.capture(fallback=False, static_inputs=["x"])
    def step(x: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) * leaf).square().sum()
        loss.backward()
        if loss > 0:
            optimizer.step()
        return loss.detach()

    with torch.enable_grad():
        for _ in range(3):
            step(X, torch.ones(1, requires_grad=True))
    return step


def _pruned() -> Any:
    weight = torch.ones(3)
    captured = hostjit.capture(lambda x: x.mul_(weight.exp()), prune=True, fallback=False)
    for _ in range(3):
        captured(torch.ones(3))
    return captured


MAKERS: dict[str, Callable[[], Any]] = {
    "compiled": _compiled,
    "recorded": _recorded,
    "pruned": _pruned,
}


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    found = {}
    for name, make in MAKERS.items():
        torch.manual_seed(0)
        path = tmp_path_factory.mktemp("whole") / "saved.hostjit"
        hostjit.save(make(), path)
        found[name] = path.read_bytes()
    return found


@pytest.fixture
def content(contents: dict[str, bytes]) -> bytes:
    return contents["compiled"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.hostjit"


def _sections(content: bytes) -> dict[str, tuple[int, int]]:
    text_bytes = int.from_bytes(content[16:24], "little")
    manifest = json.loads(content[64 : 64 + text_bytes])
    start = -(-(64 + text_bytes) // 64) * 64
    sections = {"header": (0, 64), "manifest": (64, 64 + text_bytes)}
    end = 64 + text_bytes
    for name, entry in manifest["members"].items():
        first = start + entry["offset"]
        if first > end:
            sections[f"before {name}"] = (end, first)
        end = first + entry["bytes"]
        sections[name] = (first, end)
    assert end == len(content)
    return sections


@pytest.mark.parametrize("name", ["compiled", "recorded", "pruned"])
def test_every_section_is_checked(name: str, contents: dict[str, bytes], path: Path) -> None:
    content = contents[name]
    generator = random.Random(0)
    sections = _sections(content)
    assert {"manifest", "host_ir/0", "code/0", "memory/0", "memory/1"} <= set(sections)
    assert ("code/1" in sections) == (name != "compiled")
    for name, (first, end) in sections.items():
        size = end - first
        # All bytes of what is short, and of the others the ends and some between.
        chosen = range(size)
        if size > 64:
            chosen = sorted({0, 1, size - 1, *(generator.randrange(size) for _ in range(48))})
        for position in chosen:
            damaged = bytearray(content)
            damaged[first + position] ^= 1 << generator.randrange(8)
            path.write_bytes(damaged)
            with pytest.raises(hostjit.Error) as caught:
                hostjit.load(path)
            assert str(path) in str(caught.value), (name, position)


def test_every_length_is_checked(content: bytes, path: Path) -> None:
    generator = random.Random(0)
    lengths = [
        *range(66),
        *(generator.randrange(len(content)) for _ in range(64)),
        len(content) - 1,
    ]
    for length in lengths:
        path.write_bytes(content[:length])
        with pytest.raises(hostjit.Error, match=r"cut short|is no file that"):
            hostjit.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(hostjit.Error, match=r"is damaged: it has .* bytes, its header"):
        hostjit.load(path)


@pytest.mark.parametrize("name", ["compiled", "recorded"])
def test_2000_damages_are_noticed(name: str, contents: dict[str, bytes], path: Path) -> None:
    content = contents[name]
    generator = random.Random(1)
    clear = re.compile(
        r"is damaged|is cut short|is no file that hostjit\.save wrote|has format \d+, which is"
    )
    for count in range(1000):
        damaged = bytearray(content)
        if count % 4:
            damaged[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
        else:
            del damaged[generator.randrange(len(content)) :]
        path.write_bytes(damaged)
        with pytest.raises(hostjit.Error) as caught:
            hostjit.load(path)
        assert str(path) in str(caught.value)
        assert clear.search(str(caught.value)), str(caught.value)


@pytest.mark.parametrize("cpus", [{0}, {0, 1, 2}], ids=["one_thread", "threads"])
def test_every_piece_of_a_large_member_is_checked(
    cpus: set[int], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cpus)
    written = random.Random(0).randbytes(3 * container._PIECE_BYTES + 7)
    container.write(path, {}, {"large": written, "small": b"some"})
    with container.opened(path) as file:
        assert file.read("large") == written
        assert file.read("small") == b"some"
    content = path.read_bytes()
    begin = content.index(written)
    for piece in range(4):
        place = begin + piece * container._PIECE_BYTES + 3
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with container.opened(path) as file:
            with pytest.raises(hostjit.Error, match="'large' is not what was written"):
                file.read("large")
            assert file.read("small") == b"some"


@pytest.mark.parametrize(
    ("version", "word"), [(container.FORMAT - 1, "older"), (container.FORMAT + 1, "newer")]
)
def test_other_formats(version: int, word: str, content: bytes, path: Path) -> None:
    path.write_bytes(content[:8] + version.to_bytes(4, "little") + content[12:])
    text = f"has format {version}, which is {word} than this hostjit's {container.FORMAT}"
    with pytest.raises(hostjit.Error, match=text):
        hostjit.load(path)


def test_other_files(path: Path) -> None:
    for other in (b"", b"PK\x03\x04" * 50, b"hostjit" * 20):
        path.write_bytes(other)
        with pytest.raises(hostjit.Error, match=r"is no file that hostjit\.save wrote"):
            hostjit.load(path)


def _rewrite(content: bytes, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write the file with another manifest, whose checksum fits."""
    text_bytes = int.from_bytes(content[16:24], "little")
    manifest = json.loads(content[64 : 64 + text_bytes])
    start = -(-(64 + text_bytes) // 64) * 64
    change(manifest)
    text = json.dumps(manifest, separators=(",", ":")).encode()
    members = content[start:]
    gap = -(64 + len(text)) % 64
    numbers = container._NUMBERS.pack(
        container._MAGIC, container.FORMAT, 0, len(text), 64 + len(text) + gap + len(members)
    )
    digest = hashlib.sha256(numbers + text).digest()
    path.write_bytes(numbers + digest + text + bytes(gap) + members)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("torch", "it was saved with torch 1.0, and this is"),
        ("hostjit", "it was saved with hostjit 1.0, and this is"),
        ("host", "on a machine with another CPU"),
    ],
)
def test_code_of_elsewhere_is_compiled_again(
    key: str, text: str, content: bytes, path: Path
) -> None:
    path.write_bytes(content)
    with torch.no_grad():
        expected = hostjit.load(path)(X)
        _rewrite(content, path, lambda manifest: manifest.update({key: "1.0"}))
        loaded = hostjit.load(path)
        assert loaded.recompiled.startswith(text) or text in loaded.recompiled
        torch.testing.assert_close(loaded(X), expected, rtol=0, atol=0)


def test_code_of_another_build_is_compiled_again(content: bytes, path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        manifest["programs"][0]["key"] = "00" * 32

    _rewrite(content, path, change)
    loaded = hostjit.load(path)
    assert loaded.recompiled == "it was saved by another build of hostjit"
    with torch.no_grad():
        loaded(X)


def _leaves(value: Any, at: tuple[Any, ...] = ()) -> Any:
    yield at
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, (*at, index))


@pytest.mark.parametrize("name", ["compiled", "recorded", "pruned"])
def test_manifests_that_nobody_wrote_never_crash(
    name: str, contents: dict[str, bytes], path: Path
) -> None:
    """Checksums are no signature: what is malformed on purpose is an error, or loads."""
    content = contents[name]
    text_bytes = int.from_bytes(content[16:24], "little")
    places = [place for place in _leaves(json.loads(content[64 : 64 + text_bytes])) if place]
    generator = random.Random(0)
    failed = 0
    for place in places:
        value = generator.choice([None, -1, 2**40, "x", [], {}, [["output", 7]], 1.5, True])

        def change(manifest: Any, place: Any = place, value: Any = value) -> None:
            for key in place[:-1]:
                manifest = manifest[key]
            manifest[place[-1]] = value

        _rewrite(content, path, change)
        try:
            loaded = hostjit.load(path)
        except hostjit.Error:
            failed += 1
            continue
        assert callable(loaded), place
    assert failed > len(places) / 2
