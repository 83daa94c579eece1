# SPDX-License-Identifier: Apache-2.0
"""The folders of the package are layers: docs/explanation/architecture.md has the table."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import hostjit

ROOT = Path(hostjit.__file__).parent
# A folder imports from itself and from those in lines above its own.
LAYERS = (
    ("bytecode", "kernels"),
    ("launching",),
    ("capturing",),
    ("lowering",),
    ("inductor",),
    ("compiling",),
    ("backend", "fusion", "optimizers"),
    ("parts",),
    ("recording",),
    ("saving",),
)
# Where a layer leaves what it can't do to one below it here, within a function.
LEFT_TO_UPPER = {
    ("launching", "lowering"),  # a user's kernel that is called without a program has one made
    ("compiling", "backend"),  # backward passes of a composed graph
    ("compiling", "parts"),  # calls that no one program can answer
    ("compiling", "recording"),
    ("backend", "optimizers"),  # steps
    ("backend", "parts"),  # passes of loops in frames
}


def _imported(tree: ast.AST, *, in_function: bool = False) -> Iterator[tuple[str, bool]]:
    """The modules that code imports, and whether a function does; not those for checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", in_function) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, in_function) for alias in node.names)
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from _imported(node, in_function=in_function or is_function)


@functools.cache
def _imports(path: Path) -> list[tuple[str, bool]]:
    return [*_imported(ast.parse(path.read_text()))]


def _edges() -> Iterator[tuple[str, str, bool, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        folder = path.relative_to(ROOT).parts[0]
        for module, in_function in _imports(path):
            names = module.split(".")
            if names[0] == "hostjit" and len(names) > 1 and (ROOT / names[1]).is_dir():
                yield folder, names[1], in_function, path.relative_to(ROOT)


def test_folders_import_from_lower_ones_alone() -> None:
    level = {folder: number for number, layer in enumerate(LAYERS) for folder in layer}
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert folders == {*level}
    upward = [
        (folder, other, in_function, path)
        for folder, other, in_function, path in _edges()
        if folder in level and folder != other and level[other] >= level[folder]
    ]
    assert [edge for edge in upward if not edge[2]] == []
    assert {edge[:2] for edge in upward} == LEFT_TO_UPPER


def test_no_file_imports_one_that_imports_it() -> None:
    """Ahead of any call: imports within functions are made when they are called."""
    files = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path
        for path in ROOT.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    open_: list[str] = []
    done: set[str] = set()

    def visit(name: str) -> None:
        assert name not in open_, [*open_[open_.index(name) :], name]
        if name in done:
            return
        open_.append(name)
        for module, in_function in _imports(files[name]):
            parent = module.rpartition(".")[0]
            found = module if module in files else parent
            # The core, which every file may import, is of no file.
            if not in_function and found in files and module != "hostjit._C" and found != name:
                visit(found)
        done.add(open_.pop())

    for name in files:
        visit(name)
