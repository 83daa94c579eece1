# SPDX-License-Identifier: Apache-2.0
"""What code can reach outside of the arguments: found, remembered and compared."""
