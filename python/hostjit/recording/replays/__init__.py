# SPDX-License-Identifier: Apache-2.0
"""What has to hold at a call, and what answers it."""
