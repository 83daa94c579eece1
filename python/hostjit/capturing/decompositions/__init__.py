# SPDX-License-Identifier: Apache-2.0
"""Operators as others that they are made of, where those fuse to something faster."""
