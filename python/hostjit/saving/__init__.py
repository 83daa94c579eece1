# SPDX-License-Identifier: Apache-2.0
"""Compiled functions in files: programs, their code, constants, and what calls are checked for."""
