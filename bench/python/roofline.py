# SPDX-License-Identifier: Apache-2.0
"""What the machine could do at best, measured in the same run."""

import ctypes
import functools

import llvmlite.binding as llvm
import torch
from measure import Timed, interleave

# A copy this small is in the nearest cache; the time of a smaller one is the time of a call.
_LEAST_COPIED = 1 << 14
_ROUNDS = 9

# The widest vectors that the CPU has, in chains that fill its units.
_LANES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
_CHAINS = 10
_REPETITIONS = 10_000


@functools.cache
def copy_bandwidth(num_bytes: int) -> float:
    """Return bytes per second, read and written, of memmove where both sides take `num_bytes`.

    Rounded up to a power of two, so that few sizes are measured.
    """
    size = max(_LEAST_COPIED, 1 << (max(1, num_bytes // 2) - 1).bit_length())
    return _copy_bandwidth(size)


@functools.cache
def _copy_bandwidth(size: int) -> float:
    source, destination = torch.ones(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    move = ctypes.CDLL(None).memmove
    move.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    addresses = destination.data_ptr(), source.data_ptr()
    copy, call = interleave(
        [Timed(move, (*addresses, size)), Timed(move, (*addresses, 0))], _ROUNDS
    )
    return 2 * size / max(copy.median - call.median, 1e-12)


@functools.cache
def peak_flops() -> float:
    """Return operations per second of one core that does nothing but float32 multiply-adds."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), jit=True
    )
    module = llvm.parse_assembly(_multiply_adds())
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("multiply_adds"))
    sink = torch.ones(_LANES)
    (timing,) = interleave([Timed(loop, (sink.data_ptr(),))], _ROUNDS)
    return 2 * _LANES * _CHAINS * _REPETITIONS / timing.minimum


def _multiply_adds() -> str:
    """Write a loop of independent chains, enough of them to hide the latency of an instruction."""
    vector = f"<{_LANES} x float>"
    intrinsic = f"@llvm.fma.v{_LANES}f32"
    chains = range(_CHAINS)
    return "\n".join(
        [
            f"declare {vector} {intrinsic}({vector}, {vector}, {vector})",
            "define void @multiply_adds(ptr %sink) {",
            "entry:",
            f"  %x = load {vector}, ptr %sink, align 4",
            "  br label %loop",
            "loop:",
            "  %count = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *(f"  %a{i} = phi {vector} [ %x, %entry ], [ %b{i}, %loop ]" for i in chains),
            *(
                f"  %b{i} = call {vector} {intrinsic}({vector} %a{i}, {vector} %x, {vector} %a{i})"
                for i in chains
            ),
            "  %next = add i64 %count, 1",
            f"  %done = icmp eq i64 %next, {_REPETITIONS}",
            "  br i1 %done, label %end, label %loop",
            "end:",
            f"  %s0 = fadd {vector} %b0, %b0",
            *(f"  %s{i} = fadd {vector} %s{i - 1}, %b{i}" for i in chains[1:]),
            f"  store {vector} %s{_CHAINS - 1}, ptr %sink, align 4",
            "  ret void",
            "}",
        ]
    )


def least_seconds(num_bytes: int, flops: int) -> float:
    """Return the time that either the memory or the arithmetic of one core needs alone."""
    return max(num_bytes / copy_bandwidth(num_bytes), flops / peak_flops())
