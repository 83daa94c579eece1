# SPDX-License-Identifier: Apache-2.0
"""Lists of names on the command line."""

import argparse
from collections.abc import Callable, Iterable


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names; "all" is every one."""
    names = list(known)

    def parse_names(text: str) -> list[str]:
        chosen = names if text == "all" else [name.strip() for name in text.split(",")]
        if unknown := [name for name in chosen if name not in names]:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown)}; there are: {', '.join(names)}"
            )
        return chosen

    return parse_names
