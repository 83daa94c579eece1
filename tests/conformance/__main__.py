# SPDX-License-Identifier: Apache-2.0
"""`python tests/conformance`: see `--help`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from conformance.command_line import main

    sys.exit(main())
