# SPDX-License-Identifier: Apache-2.0
"""An environment for child processes in which the entry points of pyproject.toml are installed."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

__all__ = ["environment_with_entry_point"]

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def environment_with_entry_point(folder: Path) -> dict[str, str]:
    """Write the metadata of a package with the entry point to `folder`, and put it on the path.

    Whatever is installed here; modules are found where this process finds them.
    """
    entry_points = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]
    (entry,) = entry_points["torch_dynamo_backends"].items()
    information = folder / "backend_entry-1.0.dist-info"
    information.mkdir()
    metadata = "Metadata-Version: 2.1\nName: backend-entry\nVersion: 1.0\n"
    (information / "METADATA").write_text(metadata)
    (information / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\n{} = {}\n".format(*entry)
    )
    paths = [str(folder), *(path for path in sys.path if path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
