# SPDX-License-Identifier: Apache-2.0
"""Compiled programs as Host IR text and object code."""

from __future__ import annotations

from hostjit import _C
from hostjit.saving.container import SavedFile

__all__ = ["ProgramReader", "ProgramWriter"]

# Of kernels whose code is in the program.
_PORTABLE_LANGUAGES = ("llvm_ir", "ptx", "cubin")
_LAUNCH = "hostjit::launch_kernel"
_DRAW = "hostjit::draw"
_OF_STATES = ("hostjit::random_state", "hostjit::set_random_state", "hostjit::seed_random_state")


class ProgramWriter:
    """Numbers compiled programs, and collects their texts and code."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self.programs: list[_C.CompiledProgram] = []  # in their order
        self.described: list[dict[str, str]] = []
        self.members: dict[str, bytes] = {}

    def add(self, program: _C.CompiledProgram) -> int:
        """Return the number of a program; raises hostjit.Error for code that is not in it."""
        number = self._numbers.setdefault(id(program), len(self.programs))
        if number == len(self.programs):
            self.programs.append(program)
            _check_kernels(program.program)
            key, code = program.portable_code()
            self.members[f"host_ir/{number}"] = program.host_ir().encode()
            self.members[f"code/{number}"] = code
            self.described.append({"key": key.hex()})
        return number


class ProgramReader:
    """Makes the programs of a file.

    Args:
        file: which is read at once.
        described: its programs.
        with_code: link the code where it fits; else compile the Host IR.

    Attributes:
        programs: in their order.
        all_linked: no program was compiled.
    """

    def __init__(self, file: SavedFile, described: list[dict[str, str]], with_code: bool) -> None:
        self.programs: list[_C.CompiledProgram] = []
        for number, entry in enumerate(described):
            text = file.read(f"host_ir/{number}").decode()
            if any(name in text for name in _OF_STATES):
                import hostjit.recording.running.generator_states  # noqa: F401  which defines them
            program = _C.parse(text)
            _check_kernels(program)
            code = None
            if with_code:
                code = bytes.fromhex(entry["key"]), file.read(f"code/{number}")
            self.programs.append(_C.CompiledProgram.restore(program, code))
        self.all_linked = all(program.is_linked for program in self.programs)


def _check_kernels(program: _C.Program) -> None:
    for name, language in program.kernel_languages.items():
        if language not in _PORTABLE_LANGUAGES:
            what = (
                "a function of a shared library" if language == "shared_library" else "an address"
            )
            raise _C.Error(
                f"kernel '{name}' of program '{program.name}' is {what}, which is not part of the "
                "program"
            )
    if _DRAW in str(program):
        raise _C.Error(
            f"program '{program.name}' draws from a generator that an operator is given, which "
            "is an object of this process"
        )
    if _LAUNCH in str(program):
        raise _C.Error(
            f"program '{program.name}' launches a kernel through an operator, by a number that "
            "means something in this process only"
        )
