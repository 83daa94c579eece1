# SPDX-License-Identifier: Apache-2.0
"""`python -m hostjit demo` and `python -m hostjit knobs`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the commands; see `python -m hostjit --help`."""
    parser = argparse.ArgumentParser(prog="python -m hostjit", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="compile three models, show their Host IR and their speed")
    commands.add_parser("knobs", help="list the options of HOSTJIT_ENABLE, _DISABLE and _DUMP")
    command = parser.parse_args(arguments).command
    if command == "demo":
        from hostjit.demo import demo

        demo()
    else:
        from hostjit.knobs import table

        print(table())


if __name__ == "__main__":
    main()
