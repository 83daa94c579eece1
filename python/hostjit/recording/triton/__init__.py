# SPDX-License-Identifier: Apache-2.0
"""Launches that Triton makes inside of a recorded call."""
