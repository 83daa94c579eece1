# SPDX-License-Identifier: Apache-2.0
"""The Python code that runs in a call, and what it asks for that no name in it tells."""
