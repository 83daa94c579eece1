# SPDX-License-Identifier: Apache-2.0
"""What is known of the calls of a captured function, and what their arguments were."""
