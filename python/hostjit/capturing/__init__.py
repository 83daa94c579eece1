# SPDX-License-Identifier: Apache-2.0
"""Capture: from a callable and one call's arguments to a functional ATen program."""
