# SPDX-License-Identifier: Apache-2.0
"""Kernels that factorize small matrices and solve with them, as LLVM IR text."""
