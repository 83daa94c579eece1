# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of docs/reference.

python docs/generate.py            # writes them
python docs/generate.py --check    # fails when one is not current
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from hostjit import _C

REFERENCE = Path(__file__).parent / "reference"
RECORDING_TESTS = "tests/python/recording"

EXAMPLE = """\
program @policy(%x: tensor<f32, [1, 32], cpu>, %w: tensor<f32, [64, 32], cpu>) {
  %h = allocate() : tensor<f32, [1, 64], cpu>
  linear(input=%x, weight=%w, out=%h) loc("model.py:12")
  %y = allocate() : tensor<f32, [1, 64], cpu>
  launch_kernel(kernel="double", inputs=[%h], outputs=[%y])
  deallocate(buffer=%h)
  return %y
}

kernel @double \"\"\"
define void @double(ptr %in0, ptr %out0) {
  %x = load <64 x float>, ptr %in0, align 4
  %y = fadd <64 x float> %x, %x
  store <64 x float> %y, ptr %out0, align 4
  ret void
}
\"\"\"
"""

INTRODUCTION = """\
# Host IR

{example}

A program has typed inputs, ops in the order in which they run, and outputs. `init {{ ... }}`
before them holds ops that run once per frame. Kernels follow the program.

An op that writes memory names it in a field (`out`, `outputs`): only `allocate`, `constant`,
`view` and `aten_call` make tensors. `loc("...")` is the line of the model that the op comes
from. A field that has its default is not printed.

**Types.** `tensor<dtype, [sizes], strides=[...], device>`, where strides count elements and are
left out when contiguous; `index` (a 64-bit integer), `f64`, `bool`, `stream`, `event`.

**Dtypes.** {dtypes}.

**Literals.** `none`, `true`, `7`, `1.5`, `"sum"`, `complex(1.0, -2.0)`, `dtype(f32)`,
`device(cpu)`, `layout(strided)`, `memory_format(channels_last)`, `$0` (an operand of the op),
and lists of literals.

**Memory**, in the tables below: what the op does to the memory of an operand, or where the
memory of a result comes from. The passes go by nothing else.

# Ops

"""


def host_ir() -> str:
    """Return the page of Host IR; the example at its beginning is parsed."""
    _C.parse(EXAMPLE)
    dtypes = ", ".join(f"`{name}`" for name in _C.torch_dtypes())
    example = "\n".join(f"    {line}".rstrip() for line in EXAMPLE.splitlines())
    return INTRODUCTION.format(example=example, dtypes=dtypes) + _C.op_reference_page()


TINYJIT = """\
# Where hostjit.capture differs from TinyJit

What tinygrad's TinyJit documents, what its tests call footguns, and holes in its checks, beside
what [`hostjit.capture`](../how-to/record_and_replay.md) does. Each row is two tests of its name in
[`{folder}`](../../{folder}): what hostjit gives, by either runtime, in `test_tinyjit_*.py`; and
what tinygrad 0.14.0 gives on its CPU device, in `test_tinygrad_*.py`.

| test | TinyJit | hostjit.capture |
| --- | --- | --- |
"""


def tinyjit() -> str:
    """Return the page of behaviours, made of the docstrings of the tests that show them."""
    rows = "".join(f"| `{name}` | {theirs} | {ours} |\n" for name, theirs, ours in behaviours())
    return TINYJIT.format(folder=RECORDING_TESTS) + rows


def behaviours() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each test that compares, and what either does."""
    for path in sorted((Path(__file__).parents[1] / RECORDING_TESTS).glob("test_tinyjit_*.py")):
        of_tinygrad = path.with_name(path.name.replace("tinyjit", "tinygrad"))
        shown = [test.name for test in tests_of(of_tinygrad)]
        if shown != [test.name for test in tests_of(path)]:
            raise ValueError(f"{of_tinygrad} does not have the tests of {path}, in their order")
        for test in tests_of(path):
            text = " ".join((ast.get_docstring(test) or "").split())
            found = re.fullmatch(r"tinygrad: (.*); hostjit: (.*)", text)
            if found is None:
                raise ValueError(f"{path}: {test.name} does not say what tinygrad and hostjit do")
            yield test.name.removeprefix("test_"), found[1], found[2].removesuffix(".")


def tests_of(path: Path) -> list[ast.FunctionDef]:
    """Return the tests of a file."""
    functions = [f for f in ast.parse(path.read_text()).body if isinstance(f, ast.FunctionDef)]
    return [function for function in functions if function.name.startswith("test_")]


PAGES: dict[str, Callable[[], str]] = {
    "host_ir.md": host_ir,
    "knobs.md": _C.knob_reference_page,
    "tinyjit.md": tinyjit,
}


def main() -> int:
    """Write the pages, or name those that are not current."""
    stale = [name for name in PAGES if not is_current(name)]
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/reference/{name} is not current: run python docs/generate.py")
        return 1 if stale else 0
    for name in stale:
        (REFERENCE / name).write_text(PAGES[name]())
        print(f"wrote docs/reference/{name}")
    return 0


def is_current(name: str) -> bool:
    """Tell whether the page on disk is what the core would write now."""
    path = REFERENCE / name
    return path.exists() and path.read_text() == PAGES[name]()


if __name__ == "__main__":
    sys.exit(main())
