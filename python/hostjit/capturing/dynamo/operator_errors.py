# SPDX-License-Identifier: Apache-2.0
"""Captures that stop at what an operator may raise where the code handles it.

Fake tensors have no elements. So an operator that raises for some, such as a Cholesky factorization
of a matrix that has none, is taken never to raise, and a handler around it would be left out.

Dynamo of torch 2.14 also goes on in the handler where an operator raises for fake tensors. What it
raises there is a RuntimeError in place of any other error, and its text is Dynamo's, not the
operator's. Captures of torch before that stop there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from torch._dynamo import exc, graph_break_hints, utils
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from hostjit.capturing.dynamo.handled_code import is_handler, only_cleans_up
from hostjit.capturing.dynamo.kept_results import is_installed_file
from hostjit.capturing.failures import is_library_file
from hostjit.replacements import replaced_attribute

__all__ = ["stopping_at_operator_errors"]

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
        *("index_select", "index_add", "index_copy", "index_fill", "index_put", "index_reduce"),
        *("gather", "scatter", "scatter_add", "scatter_reduce", "take", "take_along_dim", "put"),
        *("embedding", "embedding_bag", "one_hot", "nll_loss", "cross_entropy", "bincount"),
        *("repeat_interleave", "unravel_index"),
        *("masked_scatter", "ctc_loss", "binary_cross_entropy", "multi_margin_loss", "as_strided"),
        *("floor_divide", "remainder", "fmod", "floordiv", "mod", "ifloordiv", "imod", "histc"),
    }
)


@contextlib.contextmanager
def stopping_at_operator_errors() -> Iterator[None]:
    """Have Dynamo stop there, in this thread."""
    original: Any = getattr(utils, "_get_fake_value_impl", None)
    if original is None:  # torch 2.12 and earlier
        yield
        return
    owner = threading.get_ident()

    def get_fake_value(node: Any, tx: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != owner:
            return original(node, tx, *args, **kwargs)
        if _may_raise(node) and _is_handled(tx):
            _stop(_name(node.target))
        try:
            return original(node, tx, *args, **kwargs)
        except _OBSERVED as error:
            text = exc.format_graph_break_message(
                "RuntimeError when making fake tensor call",
                "",
                str(error),
                [*graph_break_hints.USER_ERROR],
            )
            raise exc.TorchRuntimeError(text, error.real_stack) from error

    with replaced_attribute(utils, "_get_fake_value_impl", get_fake_value):
        yield


# These do for elements of an index.
_ITEMS = frozenset({"getitem", "setitem", "__getitem__", "__setitem__"})


def _may_raise(node: Any) -> bool:
    name = _name(node.target)
    if name in _ITEMS:
        return any(isinstance(leaf, Node) for leaf in tree_leaves(node.args[1:2]))
    return name.rstrip("_") in _BY_ELEMENTS


def _name(target: Any) -> str:
    """The name of a function or method that a node of Dynamo's graph calls."""
    return target if isinstance(target, str) else str(getattr(target, "__name__", ""))


def _is_handled(tx: Any) -> bool:
    """Tell whether the code that is traced, or a caller of it, handles errors; not of libraries.

    What an installed package only does on the way (`finally`) does not count: most of it undoes
    what the call has changed, which a program that raises has not.
    """
    while tx is not None:
        name = tx.f_code.co_filename
        if not is_library_file(name) and _has_handler(tx, or_cleans_up=not is_installed_file(name)):
            return True
        tx = getattr(tx, "parent", None)
    return False


def _has_handler(tx: Any, or_cleans_up: bool) -> bool:
    """Tell whether a frame handles what its instruction raises, by Dynamo's copy of the code.

    The offsets of that are not those of the code.
    """
    suppresses = "suppress" in tx.f_code.co_names
    entry, seen = tx.current_instruction.exn_tab_entry, set()
    while entry is not None and id(entry.target) not in seen:
        seen.add(id(entry.target))
        index = tx.indexof[entry.target]
        if is_handler(tx.instructions, index, suppresses):
            if or_cleans_up or not only_cleans_up(tx.instructions, tx.indexof, index):
                return True
        # The end of a `with` block, or the clean-up of a handler or a generator, raises it again.
        entry = entry.target.exn_tab_entry
    return False


def _stop(name: str) -> None:
    exc.unimplemented(
        gb_type="operator that may raise where the code handles it",
        context=name,
        explanation=f"{name} raises for some elements, which Dynamo does not know.",
        hints=[],
    )
