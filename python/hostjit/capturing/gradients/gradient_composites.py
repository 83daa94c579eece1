# SPDX-License-Identifier: Apache-2.0
"""Composite operators that PyTorch decomposes for inference, traced with gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._inductor import config as inductor_config

from hostjit.capturing.decompositions.draws_in_place import draws_in_order
from hostjit.capturing.decompositions.dropout import dropout_as_eager
from hostjit.capturing.decompositions.interpolation import interpolation_in_one
from hostjit.capturing.decompositions.writes_in_order import writes_in_order
from hostjit.capturing.functional.eager_derivatives import eager_derivatives
from hostjit.capturing.functional.open_composites import composites_of_open_sizes
from hostjit.capturing.functional.open_powers import powers_of_open_numbers
from hostjit.capturing.functional.recurrent_dropout import dropout_between_layers
from hostjit.capturing.gradients.kept_checks import checks_kept
from hostjit.capturing.gradients.recurrent_layers import recurrent_networks_with_gradients

__all__ = ["composites_with_gradients"]


@contextlib.contextmanager
def composites_with_gradients() -> Iterator[None]:
    """Trace dropout without copies, interpolation as one operator, and recurrent networks.

    Checks of results stay, and so do random numbers that nothing uses: they move the generator.
    """
    with (
        dropout_as_eager(),
        draws_in_order(),
        writes_in_order(),
        eager_derivatives(),
        interpolation_in_one(),
        composites_of_open_sizes(),
        powers_of_open_numbers(),
        recurrent_networks_with_gradients(),
        dropout_between_layers(),
        checks_kept(),
        inductor_config.patch(fallback_random=True),
    ):
        yield
