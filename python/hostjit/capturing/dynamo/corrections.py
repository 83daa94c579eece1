# SPDX-License-Identifier: Apache-2.0
"""What Dynamo knows wrongly: guards that it leaves out, and where it does otherwise than Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._dynamo import config

from hostjit.capturing.compile_lock import compile_lock
from hostjit.capturing.dynamo.absences import guarding_absences
from hostjit.capturing.dynamo.attributes_of_keys import comparing_attributes_of_keys
from hostjit.capturing.dynamo.attributes_of_optimizers import storing_attributes_of_optimizers
from hostjit.capturing.dynamo.cells import reading_cells
from hostjit.capturing.dynamo.class_changes import stopping_at_class_changes
from hostjit.capturing.dynamo.class_contents import guarding_class_contents
from hostjit.capturing.dynamo.constant_tuples import making_tuples_once
from hostjit.capturing.dynamo.container_changes import stopping_at_container_changes
from hostjit.capturing.dynamo.deleted_attributes import deleting_from_dicts
from hostjit.capturing.dynamo.dicts_of_objects import guarding_dicts_of_objects
from hostjit.capturing.dynamo.direct_calls import (
    calling_graphs_directly,
    reading_sizes_directly,
)
from hostjit.capturing.dynamo.distinct_objects import guarding_distinct_objects
from hostjit.capturing.dynamo.equal_keys import comparing_keys
from hostjit.capturing.dynamo.function_names import reading_names_of_functions
from hostjit.capturing.dynamo.global_hooks import guarding_global_hooks
from hostjit.capturing.dynamo.growing_lists import following_growth_in_frames
from hostjit.capturing.dynamo.guard_lives import guards_outlive_classes
from hostjit.capturing.dynamo.guarded_classes import guarding_classes
from hostjit.capturing.dynamo.guarded_results import guarding_duplicates
from hostjit.capturing.dynamo.handed_on import handing_on_unread
from hostjit.capturing.dynamo.handled_asserts import asserting_as_python
from hostjit.capturing.dynamo.hidden_builtins import guarding_builtins
from hostjit.capturing.dynamo.hook_changes import stopping_at_hook_changes
from hostjit.capturing.dynamo.identities import stopping_at_identities
from hostjit.capturing.dynamo.imported_modules import guarding_imported_modules
from hostjit.capturing.dynamo.kept_results import stopping_at_kept_results
from hostjit.capturing.dynamo.known_numbers import (
    knowing_divided_floats,
    knowing_numbers,
    making_texts_of_numbers,
)
from hostjit.capturing.dynamo.lazy_clones import following_lazy_clones
from hostjit.capturing.dynamo.lazy_modules import refusing_lazy_modules
from hostjit.capturing.dynamo.library_globals import guarding_library_globals
from hostjit.capturing.dynamo.loggers import following_loggers
from hostjit.capturing.dynamo.looked_up_keys import guarding_looked_up_keys
from hostjit.capturing.dynamo.loop_breaks import knowing_loops
from hostjit.capturing.dynamo.lost_writes import keeping_writes
from hostjit.capturing.dynamo.many_numbers import stopping_at_many_numbers
from hostjit.capturing.dynamo.memberships import memberships_of_unknown
from hostjit.capturing.dynamo.namespaces import following_namespaces
from hostjit.capturing.dynamo.numpy_errors import stopping_at_numpy_errors
from hostjit.capturing.dynamo.older_versions import as_later_dynamo
from hostjit.capturing.dynamo.open_generators import stopping_at_open_generators
from hostjit.capturing.dynamo.operator_errors import stopping_at_operator_errors
from hostjit.capturing.dynamo.polyfills import stopping_at_polyfills
from hostjit.capturing.dynamo.random_numbers import stopping_at_random_numbers
from hostjit.capturing.dynamo.recurrent_steps import skipping_steps
from hostjit.capturing.dynamo.remembered import remembering_nothing
from hostjit.capturing.dynamo.reversed_ranges import ending_reversed_ranges
from hostjit.capturing.dynamo.saved_tensor_hooks import guarding_saved_tensor_hooks
from hostjit.capturing.dynamo.shared_dicts import stopping_at_shared_dicts
from hostjit.capturing.dynamo.signs_of_zero import guarding_signs_of_zero
from hostjit.capturing.dynamo.slots_of_numbers import slots_as_python
from hostjit.capturing.dynamo.sorted_pairs import sorting_pairs
from hostjit.capturing.dynamo.stops import stopping
from hostjit.capturing.dynamo.tensor_identities import (
    guarding_compared_tensors,
    guarding_parameters_of_optimizers,
)
from hostjit.capturing.dynamo.tensor_places import following_places
from hostjit.capturing.dynamo.traced_instead import tracing_instead
from hostjit.capturing.dynamo.unchanged_buffers import unchanged_buffers_are_themselves
from hostjit.capturing.dynamo.weak_references import refusing_weak_references
from hostjit.capturing.dynamo.whole_dicts import guarding_whole_dicts
from hostjit.capturing.dynamo.whole_operators import whole_operators

__all__ = ["corrected", "corrected_alone", "corrected_for_backend"]

_CORRECTIONS = (
    remembering_nothing,
    as_later_dynamo,
    tracing_instead,
    stopping_at_random_numbers,
    stopping_at_operator_errors,
    asserting_as_python,
    stopping_at_container_changes,
    guarding_absences,
    guarding_dicts_of_objects,
    guarding_builtins,
    guarding_imported_modules,
    guarding_library_globals,
    guarding_duplicates,
    guarding_classes,
    reading_cells,
    guarding_looked_up_keys,
    guarding_whole_dicts,
    guarding_parameters_of_optimizers,
    storing_attributes_of_optimizers,
    deleting_from_dicts,
    stopping_at_shared_dicts,
    reading_names_of_functions,
    guards_outlive_classes,
    stopping_at_kept_results,
    following_loggers,
    stopping_at_class_changes,
    memberships_of_unknown,
    comparing_keys,
    comparing_attributes_of_keys,
    slots_as_python,
    following_namespaces,
    making_tuples_once,
    ending_reversed_ranges,
    stopping_at_open_generators,
    knowing_numbers,
    stopping_at_identities,
    stopping_at_polyfills,
    sorting_pairs,
    stopping_at_numpy_errors,
    unchanged_buffers_are_themselves,
    following_lazy_clones,
    refusing_lazy_modules,
    refusing_weak_references,
    stopping_at_hook_changes,
    reading_sizes_directly,
    handing_on_unread,
    knowing_loops,
    stopping,
)


@contextlib.contextmanager
def corrected() -> Iterator[None]:
    """Have Dynamo leave guards where it would not, and stop where it would go wrong.

    It holds for a call traced whole or in parts, and for frames below a call alike.
    """
    with contextlib.ExitStack() as stack:
        for correction in _CORRECTIONS:
            stack.enter_context(correction())
        yield


@contextlib.contextmanager
def corrected_alone() -> Iterator[None]:
    """Have Dynamo corrected for code that has no guards but Dynamo's own: a frame, not a call."""
    with (
        corrected(),
        making_texts_of_numbers(),
        knowing_divided_floats(),
        guarding_class_contents(),
        guarding_distinct_objects(),
        guarding_signs_of_zero(),
        guarding_compared_tensors(),
        guarding_global_hooks(),
        guarding_saved_tensor_hooks(),
        keeping_writes(),
        following_growth_in_frames(),
        calling_graphs_directly(),
    ):
        yield


@contextlib.contextmanager
def corrected_for_backend() -> Iterator[None]:
    """Have Dynamo corrected, and take whole what graphs of `torch.compile` are to have whole.

    `nn.RNN`, `nn.GRU` and `nn.LSTM` are followed, which Dynamo leaves to eager mode: their steps
    are one operator here, and not unrolled.
    Ints of modules that vary, such as counters, are left open as those of other objects are. Where
    all ints are open from the start, with `dynamic=True`, those of modules are known.
    """
    opens_ints = config.allow_unspec_int_on_nn_module or config.assume_static_by_default
    with (
        compile_lock,
        config.patch(allow_unspec_int_on_nn_module=opens_ints, allow_rnn=True),
        whole_operators(),
        skipping_steps(),
        following_places(),
        stopping_at_many_numbers(),
        corrected_alone(),
    ):
        yield
