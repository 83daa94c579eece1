# SPDX-License-Identifier: Apache-2.0
"""A call runs, and what has to be recorded otherwise than it runs is replaced or noted."""
