# SPDX-License-Identifier: Apache-2.0
"""`hostjit.launch` on the CPU: eagerly and in compiled functions, which have to agree."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from cpu_kernels import WORDS, agree, build_scale, c_scale, of_text, randn

import hostjit

SCALE = of_text()
ADD = of_text("add", "fadd")
RANGED = of_text("ranged", over_range=True)


def kernels() -> list[Any]:
    names = {"text": SCALE, "built": hostjit.kernel(build_scale, parameters=WORDS, writes=[0])}
    names["c"] = hostjit.kernel(c_scale(), writes=[0])
    return [pytest.param(kernel, id=name) for name, kernel in names.items()]


@pytest.mark.parametrize("kernel", kernels())
def test_between_other_kernels(kernel: hostjit.Kernel) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(kernel, 1, (y, x + 1, 0.5, x.numel()))
        return torch.relu(y) * 2

    fast = agree(f, lambda: (randn(4, 5),))
    assert "launch_kernel" in fast.host_ir() and "copy(" not in fast.host_ir()


def test_small_kernels_are_inlined() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 0.5, 16))
        return y

    fast = agree(f, lambda: (randn(16),))
    assert ".kernel." not in "".join(re.findall("call .*", fast.llvm_ir()))
    assert ".kernel." not in fast.asm() and "fmul" in fast.llvm_ir()


def test_programs_with_llvm_ir_are_text() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 0.5, 8))
        return y

    written = agree(f, lambda: (randn(8),)).host_ir()
    assert 'llvm_ir(entry="scale", parameters=[ptr, ptr, f32, i64])' in written
    program = hostjit.ir.parse(written)
    assert str(program) == str(hostjit.ir.parse(str(program)))


def test_an_input_is_written_in_place() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, 1, (x, x, 0.5, x.numel()))
        hostjit.launch(SCALE, 1, (x, x, 0.25, x.numel()))
        return x + 1

    fast = agree(f, lambda: (randn(30),))
    assert fast.host_ir().count("launch_kernel") == 3 and "copy(" not in fast.host_ir()


def test_what_is_still_read_is_kept() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x * 2
        kept = h.clone()
        hostjit.launch(SCALE, 1, (h, h, 0.5, x.numel()))
        return h, kept

    agree(f, lambda: (randn(30),))


def test_rows_of_one_tensor() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(8, 8)
        hostjit.launch(SCALE, 1, (table[2], x, 2.0, 8))
        hostjit.launch(SCALE, 1, (table[3], table[2], 3.0, 8))
        return table

    agree(f, lambda: (randn(8),))


def test_two_kernels_with_a_helper_of_one_name() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y, z = torch.empty_like(x), torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 3.0, x.numel()))
        hostjit.launch(ADD, 1, (z, y, 3.0, x.numel()))
        return z

    x = randn(20)
    fast = agree(f, lambda: (x.clone(),))
    torch.testing.assert_close(fast(x), x * 3 + 3)


def test_constants_intrinsics_and_names_of_libraries() -> None:
    source = """
    @table = constant [2 x float] [float 2.0, float 3.0]
    @also = alias [2 x float], ptr @table
    declare float @llvm.sqrt.f32(float)
    declare float @hostjit_exp_f32(float)
    define float @expf(float %v) noinline {
      %r = call float @llvm.sqrt.f32(float %v)
      ret float %r
    }
    define void @f(ptr %y) "target-cpu"="x86-64" #0 {
      %v = load float, ptr %y
      %p = getelementptr float, ptr @also, i64 1
      %three = load float, ptr %p
      %r = call float @expf(float %v)
      %e = call float @hostjit_exp_f32(float %r)
      %s = fmul float %e, %three
      store float %s, ptr %y
      ret void
    }
    attributes #0 = { sspstrong uwtable "tune-cpu"="generic" }
    !llvm.module.flags = !{!0, !1}
    !llvm.ident = !{!2}
    !0 = !{i32 1, !"wchar_size", i32 2}
    !1 = !{i32 8, !"PIC Level", i32 0}
    !2 = !{!"a compiler"}
    """
    first = hostjit.kernel(source, "f", language="llvm_ir", writes=[0])
    second = hostjit.kernel(
        source.replace("3.0", "5.0").replace("i32 2}", "i32 4}"),
        "f",
        language="llvm_ir",
        writes=[0],
    )

    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(first, 1, (x,))
        y = torch.exp(x)
        hostjit.launch(second, 1, (y,))
        return y

    x = torch.full((1,), 0.25)
    fast = agree(f, lambda: (x.clone(),))
    expected = torch.exp(torch.exp(torch.exp(x.sqrt()) * 3).sqrt()) * 5
    torch.testing.assert_close(fast(x.clone()), expected)


def test_open_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 0.5, x.numel()))
        hostjit.launch(RANGED, x.numel(), (y, y, 2.0, x.numel()))
        hostjit.launch(RANGED, x.numel(), (y, y, 2.0, x.numel()), block=100)
        return y + 1

    fast = hostjit.compile(f, dynamic=True, fallback=False)
    for size in (4, 9, 1000, 20000):
        x = randn(size, 3)
        assert torch.equal(fast(x), x * 2 + 1)
    assert fast.host_ir().count("program @") == 1


@pytest.mark.parametrize("size", [0, 1, 7, 5000])
@pytest.mark.parametrize("block", [None, 1000])
def test_ranges_of_items(size: int, block: int | None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        hostjit.launch(RANGED, (x.numel(),), (y, x, 2.0, 0), block=block)
        return y

    fast = agree(f, lambda: (randn(size),))
    is_divided = size == 5000 and block is not None
    assert ("hostjit_parallel_for" in fast.llvm_ir()) == is_divided


def test_a_grid_of_zero_does_not_run() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        hostjit.launch(SCALE, 0, (x, x, 2.0, x.numel()))
        return x + 1

    fast = agree(f, lambda: (randn(5),))
    assert fast.host_ir().count("launch_kernel") == 1


def test_versions_count() -> None:
    x = torch.ones(4)
    before = x._version
    hostjit.launch(SCALE, 1, (x, x, 2.0, 4))
    assert x._version > before


def test_torch_compile() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x * 2, 0.5, x.numel()))
        return y + 1

    x = randn(6)
    with torch.no_grad():
        assert torch.equal(torch.compile(f, backend="hostjit", fullgraph=True)(x), x + 1)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x, 3.0, x.numel()))
        return y

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        y = torch.empty_like(gradient)
        hostjit.launch(SCALE, 1, (y, gradient.contiguous(), 3.0, gradient.numel()))
        return y


def test_both_directions() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Scale.apply(x * w)
        return (y * y).sum()

    x, w = randn(5), randn(5).requires_grad_()
    f(x, w).backward()
    expected, w.grad = w.grad, None
    hostjit.compile(f, fallback=False)(x, w).backward()
    torch.testing.assert_close(w.grad, expected)


def test_a_launch_without_gradients_is_a_constant() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, (x * 2).detach(), 3.0, x.numel()))
        return (y * w).sum()

    x, w = randn(5), randn(5).requires_grad_()
    hostjit.compile(f, fallback=False)(x, w).backward()
    torch.testing.assert_close(w.grad, x * 6)


def test_a_launch_with_gradients_is_refused() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        hostjit.launch(SCALE, 1, (y, x * w, 3.0, x.numel()))
        return y.sum()

    x, w = randn(5), randn(5).requires_grad_()
    for run in (f, hostjit.compile(f)):
        with pytest.raises(RuntimeError, match="argument 1 requires a gradient"):
            run(x, w)


def _launch_global(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    hostjit.launch(SCALE, 1, (y, x, 0.5, 8))
    return y


def test_the_code_of_launches_is_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    from hostjit.capturing.capture import capture

    watches = capture(_launch_global, (randn(8),), {}).guards.watches
    paths = " ".join(str(watch.path) for watch in watches)
    assert "launching" not in paths and "SCALE" not in paths
    # Three are of PyTorch's functions and of tensors, of every program. Before torch 2.12, Dynamo
    # compares by Python code of its own, in two more modules.
    most = 9 if torch.__version__ >= (2, 12) else 13
    assert sum("hooks" not in str(watch.path) for watch in watches) <= most

    # What the user has is: the name of the kernel, and that of the function.
    fast = hostjit.compile(_launch_global)
    x = randn(8)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), x * 0.5)
        monkeypatch.setitem(globals(), "SCALE", of_text("other", "fadd"))
        torch.testing.assert_close(fast(x), x + 0.5)
        monkeypatch.setattr(hostjit, "launch", lambda kernel, grid, args: args[0].fill_(3))
        torch.testing.assert_close(fast(x), torch.full((8,), 3.0))


def test_a_kernel_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="kernel 'scale' can't be changed: make another one"):
        SCALE.block = (1, 1, 1)
    assert SCALE.block is None
