# SPDX-License-Identifier: Apache-2.0
"""Imports without garbage collections in between."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collection_paused"]


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Keep the cyclic collector from running inside a `with` block of imports.

    It would look at what the imports made again and again, for 40% of the time of importing Dynamo,
    and find nothing: modules live as long as the process. Afterwards they are where it would have
    put them, in the oldest generation. The collector of the whole process pauses; one that is off,
    or told to freeze objects, stays as it is.

    Example:
        with collection_paused():
            import torch._dynamo
    """
    if not gc.isenabled() or gc.get_freeze_count():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        # Together: all objects go to the oldest generation, unseen.
        gc.freeze()
        gc.unfreeze()
        gc.enable()
