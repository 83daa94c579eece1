# SPDX-License-Identifier: Apache-2.0
"""The graph of a recording becomes a functional program, and results are made of its outputs."""
