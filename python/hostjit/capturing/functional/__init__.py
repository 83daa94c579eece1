# SPDX-License-Identifier: Apache-2.0
"""From a torch-level graph to a functional graph of ATen operators."""
