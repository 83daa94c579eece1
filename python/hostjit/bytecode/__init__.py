# SPDX-License-Identifier: Apache-2.0
"""Code of Python functions, taken apart between lines and around loops."""
