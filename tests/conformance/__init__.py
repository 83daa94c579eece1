# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own operator database as the judge: compiled operators do what eager ones do."""
