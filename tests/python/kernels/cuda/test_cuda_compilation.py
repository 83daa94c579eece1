# SPDX-License-Identifier: Apache-2.0
"""NVRTC compiles every family for every architecture, and what comes of its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_families import some_of_each
from cuda_operations import CASES

import hostjit
from hostjit.kernels import DType
from hostjit.kernels.cuda import compile_ptx, cuda_kernel, nvrtc, ptx_files

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        nvrtc.version()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(nvrtc, "_compiled", {})
    report = {**hostjit.cache.report(), "directory": str(tmp_path)}
    monkeypatch.setattr(hostjit.cache, "report", lambda: report)
    return tmp_path / "ptx"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_family_compiles(arch: str) -> None:
    # All in one text: what takes time is the beginning of each compilation.
    kernels = [cuda_kernel(family.kernel) for family in some_of_each()]
    kernels += [
        cuda_kernel(case.kernel()) for case in CASES if case.dtype in (DType.F32, DType.I64)
    ]
    ptx = compile_ptx("".join(kernel.source for kernel in kernels), arch)
    assert f".target {arch}" in ptx
    for kernel in kernels:
        assert f".entry {kernel.entry}(" in ptx


def test_what_was_compiled_is_kept_on_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'extern "C" __global__ void nothing() {}'
    ptx = compile_ptx(source, "sm_90")
    (file,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700 and file.stat().st_mode & 0o777 == 0o600
    nvrtc._compiled.clear()
    monkeypatch.setattr(nvrtc, "_compile", lambda *_: pytest.fail("it was compiled again"))
    assert compile_ptx(source, "sm_90") == ptx


@pytest.mark.parametrize("harm", ["cut short", "written by others", "a link"])
def test_what_can_not_be_trusted_is_not_read(folder: Path, harm: str) -> None:
    ptx_files.write("key", "text")
    assert ptx_files.read("key") == "text"
    file = folder / "key.ptx"
    if harm == "cut short":
        file.write_text(file.read_text()[:-1])
    elif harm == "written by others":
        file.chmod(0o666)
    else:
        file.rename(folder / "other")
        file.symlink_to(folder / "other")
    assert ptx_files.read("key") is None


def test_messages_of_the_compiler_are_raised() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)compute_90.*identifier .nowhere. is undefined"):
        compile_ptx("__global__ void f() { nowhere(); }", "sm_90")
