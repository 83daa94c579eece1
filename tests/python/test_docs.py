# SPDX-License-Identifier: Apache-2.0
"""The pages: their Python runs, their links lead somewhere, the generated ones are current."""

import itertools
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from page_contexts import CONTEXTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
# Pages whose Python is cut out of hostjit's own.
EXCERPTS = {"add_an_op"}
EXECUTED = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *(page for page in HOW_TO if page.stem in CONTEXTS),
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", EXECUTED, ids=name)
# Pages show what hostjit warns of, such as a call that runs in parts.
@pytest.mark.filterwarnings("ignore:hostjit:UserWarning")
def test_python_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = blocks_of(page)
    contexts = CONTEXTS.get(page.stem, [""] * len(blocks))
    assert len(contexts) - len(blocks) in (0, 1), "one context for each block"
    monkeypatch.chdir(tmp_path)
    # As in a script: functions have one namespace, and the source of each is in a file.
    script = tmp_path / f"{page.stem}.py"
    script.write_text(
        "\n".join(itertools.chain(*itertools.zip_longest(contexts, blocks, fillvalue="")))
    )
    # Dynamo remembers modules by name: each page is one of its own.
    runpy.run_path(str(script), run_name=f"page_{page.stem}")


def blocks_of(page: Path) -> list[str]:
    return [block[1] for block in BLOCK.finditer(page.read_text())]


def test_every_how_to_page_with_python_is_executed() -> None:
    assert CONTEXTS.keys() | EXCERPTS == {page.stem for page in HOW_TO if blocks_of(page)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name(page)} links to {target}"
        if anchor:
            headings = [anchor_of(heading) for heading in HEADING.findall(linked.read_text())]
            assert anchor in headings, f"{name(page)} links to {target}"


def anchor_of(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
