# SPDX-License-Identifier: Apache-2.0
"""How the user's result is made of the outputs of a graph."""
