# SPDX-License-Identifier: Apache-2.0
"""Higher-order operators that control the flow: `cond`, `while_loop`, `scan`, `map`."""
