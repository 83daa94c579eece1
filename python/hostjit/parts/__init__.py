# SPDX-License-Identifier: Apache-2.0
"""What answers calls that no one program can: compiled parts of them, and Python in between."""
