# SPDX-License-Identifier: Apache-2.0
"""Python's numbers in a call, and sizes: left open, so that one program serves all values."""
