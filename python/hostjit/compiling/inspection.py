# SPDX-License-Identifier: Apache-2.0
"""What a compiled function tells of its programs: texts, timings and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hostjit import _C

if TYPE_CHECKING:
    from hostjit.profiling import Profile

__all__ = ["Inspection"]


class Inspection:
    """Texts about the program that was specialized last, and profiles.

    Attributes:
        records: it belongs to `hostjit.capture`.
        has_original: the function is what the user had before, which runs while `compile` is off.
    """

    records = False
    has_original = False

    def __init__(self) -> None:
        self._latest: _C.CompiledProgram | None = None
        self._static_reasons: list[str] = []

    def _program(self) -> _C.CompiledProgram:
        if self._latest is None:
            raise _C.Error("nothing is compiled yet: call the function once")
        return self._latest

    def host_ir(self) -> str:
        """Return the Host IR after the passes."""
        return self._program().host_ir()

    def llvm_ir(self, *, optimized: bool = True) -> str:
        """Return the LLVM IR of the program, after or before optimisation.

        Much code is optimised in parts: then the text is that of several modules.
        """
        return self._program().llvm_ir(optimized)

    def asm(self) -> str:
        """Return the assembly of the program."""
        return self._program().asm()

    def memory_plan(self) -> str:
        """Return the table of planned memory, with planned bytes and the lower bound."""
        return self._program().memory_plan()

    def static_reasons(self) -> list[str]:
        """Return why there are programs for one combination of sizes each, if others were wanted.

        Each reason once, in the order of time; `HOSTJIT_DUMP=shapes` tells them as they come up.

        Example:
            fast.static_reasons()  # ["a result is a number, which may depend on sizes"]
        """
        return list(self._static_reasons)

    def timings(self) -> dict[str, float]:
        """Return what each stage of the compilation took, in milliseconds."""
        return dict(self._program().timings())

    def profile(
        self, function: _C.CompiledFunction, *args: Any, calls: int = 100, **kwargs: Any
    ) -> Profile:
        """Measure each node of the program that answers a call of `function`.

        The program is compiled once more with a look at the clock after every node, which is then
        subtracted: nodes do not overlap as they do otherwise, and two kernels that are inlined
        side by side keep nothing in registers. Always the JIT's code, whatever the runtime. Calls
        that other threads make of the same program meanwhile mix their times with these. Of a call
        that runs in parts the nodes are those of the first part, and `call_nanoseconds` is the
        whole call.

        Args:
            function: given by `_C.CompiledFunction.profile`.
            args: as for a call.
            calls: how often the timed code runs; as many calls of the usual code come before, and
                one more. A program that writes its inputs writes them that often.
            kwargs: as for a call.

        Returns:
            A Profile: `entries`, and the table as its text.

        Raises:
            hostjit.Error: the call runs eagerly, or compiles anew each time.
            ValueError: `calls` is less than 1.

        Example:
            print(fast.profile(x))
        """
        from hostjit.profiling import profile_calls

        if calls < 1:
            raise ValueError(f"profile runs {calls} calls, expected at least 1")
        function(*args, **kwargs)
        program = self._program_of_call(function, args, kwargs)
        if program is None:
            raise _C.Error("the call runs eagerly: there is no program to profile")
        return profile_calls(program, lambda: function(*args, **kwargs), calls)

    def _program_of_call(
        self, function: _C.CompiledFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _C.CompiledProgram | None:
        specialization = function.match(*args, **kwargs)
        return specialization.program if specialization else None
