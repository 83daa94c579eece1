# SPDX-License-Identifier: Apache-2.0
"""What a program assumes about Python: Dynamo's guards as watches on what they read."""
