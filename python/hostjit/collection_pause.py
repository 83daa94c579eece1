# SPDX-License-Identifier: Apache-2.0
"""Imports and recordings without garbage collections in between."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collection_paused"]


@contextlib.contextmanager
def collection_paused(*, lasting: bool = False) -> Iterator[None]:
    """Keep the cyclic collector of the whole process from running inside a `with` block.

    It would look at what imports made again and again, for 40% of the time of importing Dynamo,
    and find nothing: modules live as long as the process. In a recording, it would run finalizers
    and callbacks that are none of the call. A collector that is off stays off.

    Args:
        lasting: what is made inside stays. Afterwards all objects are where the collector would
            have put those that stay, in the oldest generation, unless the program has frozen some.

    Example:
        with collection_paused(lasting=True):
            import torch._dynamo
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # The count goes through all objects that are frozen.
        if lasting and not gc.get_freeze_count():
            # Together: all objects go to the oldest generation, unseen.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
