# SPDX-License-Identifier: Apache-2.0
"""C functions that programs call: by whom, how long they live, and what the object cache keeps."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from cpu_kernels import agree, c_scale, of_text, randn

import hostjit
from hostjit import _C

SCALE = of_text()


def test_c_functions_are_called_directly() -> None:
    kernel = hostjit.kernel(c_scale(), writes=[0])

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x, 0.5, 16))
        return y

    fast = agree(f, lambda: (randn(16),))
    assert f'call void @"c_function:{kernel.name}"(' in fast.llvm_ir()
    assert 'c_function(entry="function", parameters=[ptr, ptr, f32, i64]) "0x' in fast.host_ir()
    with pytest.raises(hostjit.Error, match="is a c_function of the process that printed it"):
        hostjit.ir.parse(fast.host_ir())


def test_a_range_is_divided_among_threads() -> None:
    found: list[tuple[int, int, int]] = []

    def note(_: Any, begin: int, end: int) -> None:
        found.append((begin, end, threading.get_ident()))

    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kernel = hostjit.kernel(
        ctypes.CFUNCTYPE(None, *types)(note), writes=[0], over_range=True, block=10
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(kernel, 100, (x,))
        return x + 1

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for run in (f, hostjit.compile(f, fallback=False)):
            found.clear()
            run(torch.zeros(100))
            assert sorted(part[:2] for part in found) == [(0, 50), (50, 100)]
            assert len({part[2] for part in found}) == 2
    finally:
        torch.set_num_threads(before)


def test_a_c_function_lives_as_long_as_its_program() -> None:
    function = c_scale()
    gone = weakref.ref(function)
    kernel = hostjit.kernel(function, writes=[0])
    program = _C.Program("p")
    kernel.add_to(program, "k", kernel.types)
    copy = program.clone()
    del kernel, function, program
    gc.collect()
    assert gone() is not None
    del copy
    gc.collect()
    assert gone() is None


def test_another_kernel_is_seen() -> None:
    def make() -> tuple[Any, Any]:
        kernel = hostjit.kernel(c_scale(plus=1.0), writes=[0])
        holder = [kernel]

        def f(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            hostjit.launch(holder[0], 1, (y, x, 2.0, x.numel()))
            return y

        fast = hostjit.compile(f, fallback=False)
        assert fast(torch.ones(2)).tolist() == [3, 3]
        return fast, holder

    fast, holder = make()
    holder[0] = SCALE
    gc.collect()
    assert fast(torch.ones(2)).tolist() == [2, 2]


def test_the_cache_has_no_address(tmp_path: Path) -> None:
    def make(plus: float) -> Any:
        kernel = hostjit.kernel(c_scale(plus=plus), writes=[0])

        def f(x: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            hostjit.launch(kernel, 1, (y, x, 2.0, x.numel()))
            return y

        return f

    x = randn(4)
    with hostjit.knobs(cache_directory=str(tmp_path / "cache")):
        for plus, hits in ((0.0, 0), (1.0, 1), (2.0, 1)):
            before = hostjit.cache.report()["hits"]
            assert torch.equal(hostjit.compile(make(plus), fallback=False)(x), x * 2 + plus)
            assert hostjit.cache.report()["hits"] - before == hits


def test_c_functions_of_one_form_in_one_program() -> None:
    plain, more = (hostjit.kernel(c_scale(plus=plus), writes=[0]) for plus in (0.0, 1.0))

    def f(x: torch.Tensor) -> torch.Tensor:
        y, z = torch.empty_like(x), torch.empty_like(x)
        hostjit.launch(plain, 1, (y, x, 2.0, x.numel()))
        hostjit.launch(more, 1, (z, y, 2.0, x.numel()))
        return z

    x = randn(4)
    assert torch.equal(agree(f, lambda: (x.clone(),))(x), x * 4 + 1)


def test_from_several_threads() -> None:
    kernel = hostjit.kernel(c_scale(), writes=[0])

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x, 2.0, x.numel()))
        return y

    fast = hostjit.compile(f, fallback=False)
    fast(torch.ones(64))
    results: list[bool] = []

    def work(number: int) -> None:
        x = torch.full((64,), float(number))
        results.extend(bool(torch.equal(fast(x), x * 2)) for _ in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and all(results)
