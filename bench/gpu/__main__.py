# SPDX-License-Identifier: Apache-2.0
"""`python bench/gpu`: see `--help`; bench/gpu/run builds hostjit first."""

import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    # After our own folder, which has names of its own.
    sys.path.append(str(Path(__file__).parents[1] / "python"))
    from command_line import main

    warnings.filterwarnings("ignore", category=FutureWarning)
    sys.exit(main())
