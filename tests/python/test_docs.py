# SPDX-License-Identifier: Apache-2.0
"""The pages: their Python runs, their links lead somewhere, the generated ones are current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", EXECUTED, ids=name)
def test_python_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    # Line numbers of the page, so that a traceback leads to the line.
    code = "".join(
        "\n" * (text.count("\n", 0, block.start(1)) - before) + block[1]
        for block, before in with_lines_before(text)
    )
    assert code.strip(), f"{name(page)} has no Python"
    script = tmp_path / "page.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def with_lines_before(text: str) -> list[tuple[re.Match[str], int]]:
    """Pair each block with the line at which the code of the block before it ended."""
    pairs = []
    end = 0
    for block in BLOCK.finditer(text):
        pairs.append((block, end))
        end = text.count("\n", 0, block.end(1))
    return pairs


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
