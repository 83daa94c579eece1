# SPDX-License-Identifier: Apache-2.0
"""Functions of `@triton.jit` as kernels: compiled by Triton, for what is known of their arguments.

Triton compiles a variant for what it finds at a call: integers that are 1, integers and addresses
that 16 divides. A compiled function is for many calls, so here a variant is for what holds at each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from hostjit.launching.providers import Code, num_scratch_pointers
from hostjit.launching.user_kernel import Kernel, sizes_of
from hostjit.replacements import replaced_attribute

__all__ = ["TritonLaunch", "compile_triton", "compiling", "jit_function_of", "launch_of"]

_POINTEES = {
    "bool": "i1",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2": "fp8e5",
    "float8_e5m2fnuz": "fp8e5b16",
}
_NUMBERS = {
    "i1": "i8",
    "i8": "i8",
    "u1": "i8",
    "u8": "i8",
    "i16": "i16",
    "u16": "i16",
    "i32": "i32",
    "u32": "i32",
    "i64": "i64",
    "u64": "i64",
    "fp32": "f32",
    "fp64": "f64",
}
_DIVISIBLE = [["tt.divisibility", 16]]
# In Triton's IR: writes that PyTorch does not find, or finds in no argument.
_UNKNOWN_WRITES = (
    "tt.int_to_ptr",
    "tt.descriptor_reduce",
    "tt.descriptor_scatter",
    "pure = false",
)

# By Triton's hash of what it compiled; they live as long as the process, as Triton's own do.
_kernels: dict[tuple[str, tuple[int, ...]], Kernel] = {}


@dataclasses.dataclass(frozen=True)
class TritonLaunch:
    """A kernel that Triton compiled, and what a launch of it needs.

    Attributes:
        kernel: its parameters are `names`, then pointers to scratch memory.
        names: the arguments that it takes, in order.
        num_ctas: blocks of a cluster, for each block that the grid counts.
        cooperative: the blocks wait for one another.
        programmatic: it may begin before what is in front of it has ended.
        scratch_bytes: of global memory for each block, 0 for none.
        num_scratch: pointers to scratch memory; the first is for `scratch_bytes`.
    """

    kernel: Kernel
    names: tuple[str, ...]
    num_ctas: int
    cooperative: bool
    programmatic: bool
    scratch_bytes: int
    num_scratch: int

    def operands(self, arguments: Mapping[str, Any], grid: Sequence[Any]) -> list[Any]:
        """Return what `LAUNCH` takes, with new memory for scratch.

        Args:
            arguments: by name, also such as the kernel does not take.
            grid: one to three numbers of blocks.
        """
        kernel = self.kernel
        first, *rest = sizes_of(grid, f"kernel '{kernel.entry}': grid")
        taken = [*zip(kernel.parameters, self.names, strict=False)]
        pointers = {
            position: arguments[name]
            for position, (kind, name) in enumerate(taken)
            if kind == "ptr"
        }
        if self.scratch_bytes:
            size = first * math.prod(rest) * self.num_ctas * self.scratch_bytes
            device = next(iter(pointers.values())).device
            pointers[len(self.names)] = torch.empty(size, dtype=torch.uint8, device=device)
        read = [position for position in pointers if position not in kernel.writes]
        written = [position for position in pointers if position in kernel.writes]
        numbers = [(kind, arguments[name]) for kind, name in taken if kind != "ptr"]
        return [
            kernel.number,
            [pointers[position] for position in read],
            read,
            [pointers[position] for position in written],
            written,
            [
                number if isinstance(number, torch.SymInt) else int(number)
                for kind, number in numbers
                if kind[0] == "i"
            ],
            [float(number) for kind, number in numbers if kind[0] == "f"],
            [first * self.num_ctas, *rest],
            list(kernel.block or ()),
            kernel.shared_memory,
            [self.num_ctas, 1, 1] if self.num_ctas > 1 else [],
            self.cooperative,
            self.programmatic,
        ]


def jit_function_of(kernel: Any) -> Any:
    """The function of `@triton.jit` inside of an autotuner or heuristics."""
    while hasattr(kernel, "fn") and not hasattr(kernel, "params"):
        kernel = kernel.fn
    return kernel


def compile_triton(
    function: Any,
    arguments: Mapping[str, Any],
    written: Sequence[str],
    options: Mapping[str, Any],
    aligned: Sequence[str],
) -> TritonLaunch:
    """Compile a function of `@triton.jit` for the arguments of a launch, inside of `compiling`.

    Args:
        function: the JITFunction.
        arguments: by name: tensors, of which the dtype counts, numbers, symbolic integers, and
            what is a constant.
        written: those whose memory it writes.
        options: num_warps, num_stages and the like.
        aligned: names of the tensors whose addresses 16 divides at each call.

    Raises: TypeError for an argument that kernels can't be given; what Triton raises.
    """
    import triton
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for position, parameter in enumerate(function.params):
        name = parameter.name
        value = arguments.get(name, parameter.default)
        type_, is_divisible = _specialize(parameter, value, name in aligned)
        signature[name] = type_
        if type_ == "constexpr":
            constants[(position,)] = value
        elif is_divisible:
            attributes[(position,)] = _DIVISIBLE
    source = ASTSource(function, signature, constants, attributes)
    compiled = triton.compile(source, target=_target(), options=dict(options))
    return launch_of(compiled, signature, written)


def launch_of(compiled: Any, signature: Mapping[str, Any], written: Sequence[str]) -> TritonLaunch:
    """Return what a CompiledKernel of Triton is to launches.

    Args:
        compiled: the CompiledKernel.
        signature: the type of each parameter of its function, "constexpr" for constants.
        written: the parameters whose memory it writes.

    Raises: TypeError for a parameter that launches can't give, and for writes that are not known.
    """
    metadata = compiled.metadata
    ir = compiled.asm.get("ttir")
    if ir is None or any(operation in ir for operation in _UNKNOWN_WRITES):
        raise TypeError(f"kernel '{metadata.name}' may write memory that is none of its arguments")
    names = tuple(name for name, type_ in signature.items() if type_ != "constexpr")
    num_scratch = num_scratch_pointers(metadata)
    if getattr(metadata, "profile_scratch_size", 0):
        raise TypeError(f"kernel '{metadata.name}' of Triton writes a profile")
    scratch = getattr(metadata, "global_scratch_size", 0)
    types = (*(_parameter(signature[name]) for name in names), *("ptr",) * num_scratch)
    writes = tuple(position for position, name in enumerate(names) if name in written)
    if scratch:
        writes = (*writes, len(names))
    key = (compiled.hash, writes)
    if key not in _kernels:
        code = Code("cubin", compiled.asm["cubin"], metadata.name)
        block = (32 * metadata.num_warps, 1, 1)
        _kernels[key] = Kernel(code, types, writes, block, metadata.shared, strided=True)
    return TritonLaunch(
        kernel=_kernels[key],
        names=names,
        num_ctas=getattr(metadata, "num_ctas", 1),
        cooperative=bool(getattr(metadata, "launch_cooperative_grid", False)),
        programmatic=bool(getattr(metadata, "launch_pdl", False)),
        scratch_bytes=scratch,
        num_scratch=num_scratch,
    )


def _specialize(parameter: Any, value: Any, is_aligned: bool) -> tuple[str, bool]:
    """The type of a parameter in Triton's signature, and whether 16 divides it at each call."""
    if parameter.is_constexpr or value is None:
        return "constexpr", False
    is_special = not parameter.do_not_specialize
    if isinstance(value, torch.Tensor):
        pointee = _POINTEES.get(str(value.dtype).removeprefix("torch."))
        if pointee is None:
            raise TypeError(f"argument '{parameter.name}' is a tensor of {value.dtype}")
        prefix = "*k" if getattr(parameter, "is_const", False) else "*"
        of_alignment = not getattr(parameter, "do_not_specialize_on_alignment", False)
        return prefix + pointee, is_aligned and is_special and of_alignment
    annotated = getattr(parameter, "annotation_type", None)
    if isinstance(value, bool):
        return annotated or "i1", False
    if isinstance(value, int):
        if value == 1 and is_special and not annotated:
            return "constexpr", False
        of_alignment = not getattr(parameter, "do_not_specialize_on_alignment", False)
        return annotated or _integer(value), value % 16 == 0 and is_special and of_alignment
    if isinstance(value, torch.SymInt):
        return annotated or _integer(value), False
    if isinstance(value, float):
        return annotated or "fp32", False
    raise TypeError(f"argument '{parameter.name}' is a {type(value).__qualname__}")


def _integer(value: Any) -> str:
    """The type that Triton has for an integer; of an open one it becomes an assumption."""
    if value >= -(1 << 31) and value < 1 << 31:
        return "i32"
    return "i64" if value < 1 << 63 else "u64"


def _parameter(type_: Any) -> str:
    if not isinstance(type_, str):
        raise TypeError("a tuple is no parameter of a launch")
    if type_.startswith("*"):
        return "ptr"
    if type_ not in _NUMBERS:
        raise TypeError(f"a number of type {type_} is no parameter of a launch")
    return _NUMBERS[type_]


def _target() -> Any:
    from triton.backends.compiler import GPUTarget

    from hostjit.lowering.cuda_launches import architecture

    return GPUTarget("cuda", int(architecture().removeprefix("sm_")), 32)


class _TargetOnly:
    """Triton's driver where there is no GPU: it knows what to compile for, and runs nothing."""

    def get_current_target(self) -> Any:
        return _target()

    def get_current_device(self) -> int:
        return 0


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Have Triton compile where there is no GPU too: for the device that PTX is written for."""
    if torch.cuda.is_available():
        yield
        return
    from triton.runtime import driver

    with replaced_attribute(type(driver), "active", _TargetOnly()):
        yield
