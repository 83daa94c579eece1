# SPDX-License-Identifier: Apache-2.0
"""Names that Dynamo, and hostjit through it, puts among the globals of users' code."""

from __future__ import annotations

__all__ = ["GRAPH", "INSTALLED", "OF_ONE_CAPTURE"]

GRAPH = "__compiled_fn"
"""How the names of compiled graphs begin."""
OF_ONE_CAPTURE = (GRAPH, "__builtins_dict__", "__resume_at", "__hostjit")
"""How names begin that one capture alone needs."""
INSTALLED = (*OF_ONE_CAPTURE, "__import_")
"""How all of them begin. Users' code has none of these."""
