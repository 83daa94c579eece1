# SPDX-License-Identifier: Apache-2.0
"""The operators that a call runs, as a graph."""
