# SPDX-License-Identifier: Apache-2.0
"""Calls that need gradients: a forward and a backward graph, and what goes between them."""
