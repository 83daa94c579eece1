# SPDX-License-Identifier: Apache-2.0
"""How many cases: a fixed few by default, `--hypothesis-profile thousands` by hand."""

import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))

# Programs are compiled, which no deadline per example fits, and drawn by running them.
_common = settings(
    deadline=None, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)
# The few are not shrunk when they fail, which takes many compilations.
settings.register_profile(
    "few", _common, max_examples=22, derandomize=True, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("thousands", _common, max_examples=800)
settings.load_profile("few")
