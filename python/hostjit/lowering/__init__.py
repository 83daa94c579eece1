# SPDX-License-Identifier: Apache-2.0
"""From a captured graph of ATen nodes to Host IR."""
