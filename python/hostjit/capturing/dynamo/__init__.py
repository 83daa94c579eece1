# SPDX-License-Identifier: Apache-2.0
"""Dynamo's trace of a call, and what Dynamo does otherwise than Python: mended, or left to it."""
