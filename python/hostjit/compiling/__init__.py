# SPDX-License-Identifier: Apache-2.0
"""Compiling: what happens to the calls of one callable, from the first that has no program on."""
