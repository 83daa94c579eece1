# SPDX-License-Identifier: Apache-2.0
"""Operators that raise, or may, where the code handles it.

Fake tensors have no elements, and most operators on them have one implementation for all dtypes. So
an operator that raises for some elements, such as a Cholesky factorization of a matrix that has
none, or for a dtype, is taken never to raise, and a handler around it would be left out.

A capture goes on behind the operator where it is certain that no handler is reached: eager raises
for no dtypes and sizes like these (`operator_probes`), and what it raises for elements is of a
class that no handler names. It goes on in the handler where it is certain that eager raises: for
sizes that fake tensors refuse, too, and for dtypes. Elsewhere it stops.

Dynamo of torch 2.14 also goes on in the handler where an operator raises for fake tensors. What it
raises there is a RuntimeError in place of any other error. Captures of torch before that stop.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch._dynamo import exc, graph_break_hints, utils
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamo.handled_code import handled_names, is_handler, only_cleans_up
from hostjit.capturing.dynamo.hidden_builtins import guard_builtin
from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.capturing.dynamo.operator_probes import Probes
from hostjit.capturing.dynamo.stops import mark_own_words
from hostjit.capturing.failures import is_library_file
from hostjit.replacements import replaced_attribute

__all__ = ["handled_around", "stopping_at_operator_errors"]

_OBSERVED: tuple[Any, ...] = tuple(
    getattr(exc, name) for name in ("FakeTensorObservedException",) if hasattr(exc, name)
)
# Names of functions and methods that raise for some elements, without the `_` of those in place.
_BY_ELEMENTS = frozenset(
    {
        *("cholesky", "cholesky_solve", "cholesky_inverse", "inverse", "inv", "solve", "lstsq"),
        *("linalg_cholesky", "linalg_inv", "linalg_solve", "linalg_eigh", "linalg_svd", "eig"),
        *(
            "eigh",
            "eigvals",
            "eigvalsh",
            "svd",
            "svdvals",
            "lu_factor",
            "ldl_factor",
            "matrix_rank",
        ),
        *("multinomial", "bernoulli", "normal", "poisson", "binomial", "uniform", "exponential"),
        *("index_add", "index_reduce", "gather", "scatter", "scatter_add", "scatter_reduce"),
        *("take_along_dim", "put", "embedding_bag", "one_hot", "nll_loss", "cross_entropy"),
        *("bincount",),
        *("repeat_interleave", "unravel_index"),
        *("masked_scatter", "ctc_loss", "binary_cross_entropy", "multi_margin_loss", "as_strided"),
        *("floor_divide", "remainder", "fmod", "floordiv", "mod", "ifloordiv", "imod", "histc"),
    }
)


# These raise IndexError for elements of an index, and nothing else.
_BY_PLACES = frozenset(
    {
        *("index_select", "index_copy", "index_fill", "index_put", "take", "embedding"),
        *("getitem", "setitem", "__getitem__", "__setitem__"),
    }
)
# Of these, the index is an operand that may have none.
_ITEMS = frozenset({"getitem", "setitem", "__getitem__", "__setitem__"})
# What others raise for elements: no NotImplementedError, which is of dtypes and devices.
_ERRORS = (RuntimeError, IndexError, ValueError, ZeroDivisionError)


@contextlib.contextmanager
def stopping_at_operator_errors() -> Iterator[None]:
    """Have Dynamo stop there, or go on where Python would, in this thread."""
    original: Any = getattr(utils, "_get_fake_value_impl", None)
    if original is None:  # torch 2.12 and earlier
        yield
        return
    owner = threading.get_ident()
    probes = Probes()

    def get_fake_value(node: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return original(node, tx, *args, **kwargs)
        handled = handled_around(tx)
        by_elements = _by_elements(node) if handled.classes else ()
        if handled.any_of(*by_elements):
            _stop(node)
        # Before: the operator may change the sizes of its operand.
        probe = probes.of(node, tx) if handled.classes else None
        error = None if probe is None else probe.error
        if probe is None or error is None or not handled.any_of(type(error)):
            with _as_before():
                return original(node, tx, *args, **kwargs)
        # Of elements that are no zeros it may raise something else before.
        is_certain = _is_builtin(type(error)) and not by_elements
        try:
            original(node, tx, *args, **kwargs)
        except (exc.TorchRuntimeError, *_OBSERVED):
            is_certain = is_certain and not probe.is_open
        else:
            is_certain = is_certain and isinstance(error, NotImplementedError)
        if not is_certain:
            _stop(node)
        _go_on_in_handler(error, node, tx)

    with replaced_attribute(utils, "_get_fake_value_impl", get_fake_value):
        yield


def _by_elements(node: Any) -> tuple[type[BaseException], ...]:
    """The classes of what an operator raises for some elements."""
    name = _name(node.target)
    plain = name.rstrip("_") if name not in _ITEMS else name
    if plain in _BY_ELEMENTS:
        return _ERRORS
    if plain not in _BY_PLACES:
        return ()
    operands = [leaf for leaf in tree_leaves(node.args[1:2]) if isinstance(leaf, Node)]
    if plain in _ITEMS and not operands:
        return ()
    # As many values are needed as a mask has elements that are set.
    kinds = {getattr(_known(operand), "dtype", None) for operand in operands}
    return _ERRORS if kinds & {torch.bool, torch.uint8} else (IndexError,)


def _known(node: Node) -> Any:
    return node.meta.get("example_value")


def _name(target: Any) -> str:
    """The name of a function or method that a node of Dynamo's graph calls."""
    return target if isinstance(target, str) else str(getattr(target, "__name__", ""))


@dataclasses.dataclass(frozen=True)
class _Handled:
    """What the code that is traced, or a caller of it, does with errors.

    Attributes:
        classes: those that are handled.
    """

    classes: tuple[type[BaseException], ...]

    def any_of(self, *kinds: type[BaseException]) -> bool:
        return any(issubclass(kind, self.classes) for kind in kinds)


def handled_around(tx: Any) -> _Handled:
    """Tell what is handled around the instruction that is traced; not by libraries.

    What an installed package only does on the way (`finally`) does not count: most of it undoes
    what the call has changed, which a program that raises has not.
    """
    found: list[type[BaseException]] = []
    while tx is not None:
        if tx.current_instruction.exn_tab_entry is not None:
            name = tx.f_code.co_filename
            if not is_library_file(name):
                found += _handled_in(tx, or_cleans_up=not is_installed_file(name))
        tx = getattr(tx, "parent", None)
    return _Handled(tuple(found))


def _handled_in(tx: Any, or_cleans_up: bool) -> Iterator[type[BaseException]]:
    """Give the classes that a frame handles of its instruction, by Dynamo's copy of the code.

    The offsets of that are not those of the code.
    """
    suppresses = "suppress" in tx.f_code.co_names
    entry, seen = tx.current_instruction.exn_tab_entry, set()
    while entry is not None and id(entry.target) not in seen:
        seen.add(id(entry.target))
        index = tx.indexof[entry.target]
        if is_handler(tx.instructions, index, suppresses):
            if or_cleans_up or not only_cleans_up(tx.instructions, tx.indexof, index):
                yield from _classes(tx, handled_names(tx.instructions, tx.indexof, index))
        # The end of a `with` block, or the clean-up of a handler or a generator, raises it again.
        entry = entry.target.exn_tab_entry


def _classes(tx: Any, names: tuple[str, ...] | None) -> Iterator[type[BaseException]]:
    if names is None:
        yield BaseException
        return
    for name in names:
        value = None if name in tx.f_globals else tx.f_builtins.get(name)
        if not isinstance(value, type) or not _is_builtin(value):
            yield BaseException
        else:
            guard_builtin(tx, name)
            yield value


def _is_builtin(kind: type) -> bool:
    """Tell whether Dynamo knows a class of errors as its name says."""
    return issubclass(kind, BaseException) and getattr(builtins, kind.__name__, None) is kind


def _go_on_in_handler(error: Exception, node: Any, tx: Any) -> NoReturn:
    if not node._erased:  # by Dynamo, where it raises, too
        tx.output.remove_node(node)
    try:
        exc.raise_observed_exception(type(error), tx, args=[str(error)])
    finally:
        stack = tx.exn_vt_stack
        # Torch 2.14 and later have another name for it.
        raised = getattr(stack, "get_raised_exception", None) or stack.get_current_exception
        mark_own_words(raised())


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Have Dynamo of torch 2.14 stop where fake tensors raise, as it did before."""
    try:
        yield
    except _OBSERVED as error:
        hints = [*graph_break_hints.USER_ERROR]
        title = "RuntimeError when making fake tensor call"
        text = exc.format_graph_break_message(title, "", str(error), hints)
        raise exc.TorchRuntimeError(text, error.real_stack) from error


def _stop(node: Any) -> NoReturn:
    name = _name(node.target)
    exc.unimplemented(
        gb_type="operator that may raise where the code handles it",
        context=name,
        explanation=f"{name} raises for some elements, which Dynamo does not know.",
        hints=[],
    )
