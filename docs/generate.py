# SPDX-License-Identifier: Apache-2.0
"""Writes the generated pages of docs/reference.

python docs/generate.py            # writes them
python docs/generate.py --check    # fails when one is not current
"""

import sys
from collections.abc import Callable
from pathlib import Path

from hostjit import _C

REFERENCE = Path(__file__).parent / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "host_ir.md": _C.op_reference_page,
    "knobs.md": _C.knob_reference_page,
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
