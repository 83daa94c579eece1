# SPDX-License-Identifier: Apache-2.0
"""`nn.LSTM`, `nn.GRU` and `nn.RNN`, which Dynamo does not trace step by step.

PyTorch takes fake tensors through the steps, one by one: that takes long, and what is traced is for
that many steps. In what Dynamo traces for hostjit they get the results at once.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from hostjit.capturing.decompositions.lstm import last_states_as_given
from hostjit.capturing.decompositions.recurrent import RECURRENT_NETWORKS
from hostjit.capturing.functional.recurrent_networks import network_results
from hostjit.capturing.open_sizes import some
from hostjit.capturing.python_kernels import Kernels, python_kernels_changed

__all__ = ["skipping_steps"]

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@contextlib.contextmanager
def skipping_steps() -> Iterator[None]:
    """Have Dynamo skip the steps, in this thread."""
    owner = threading.get_ident()
    kernels: dict[torch._ops.OpOverload, Kernels] = {
        operator: {
            _COMPOSITE: functools.partial(_run, operator, operator.py_kernels[_COMPOSITE], owner)
        }
        for operator in RECURRENT_NETWORKS
    }
    with python_kernels_changed(kernels):
        yield


def _run(
    operator: torch._ops.OpOverload,
    steps: Callable[..., Any],
    owner: int,
    x: Tensor,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    *options: Any,
) -> Any:
    states = [hx] if isinstance(hx, Tensor) else hx
    if _is_for_dynamo(x) and threading.get_ident() == owner:
        return _differentiable(
            network_results(operator, x, hx, params, *options), x, *states, *params
        )
    with last_states_as_given():
        return steps(x, hx, params, *options)


def _is_for_dynamo(x: Tensor) -> bool:
    """Whether nobody but Dynamo looks, for which results of the right sizes and types do.

    Under autocast the types are others. A backend that traces the graph further does so while
    Dynamo's translator is still there.
    """
    is_sequence = x.dim() == 3 and some(x.shape)  # else eager raises
    is_plain = is_sequence and not torch.is_autocast_enabled(x.device.type)
    return is_plain and isinstance(x, FakeTensor) and get_proxy_mode() is None


def _differentiable(results: Sequence[Tensor], *operands: Tensor) -> Sequence[Tensor]:
    """Return results that need gradients, and have an origin, where an operand needs gradients.

    Every result depends on all operands of it.
    """
    needing = [operand for operand in operands if operand.requires_grad]
    if not (needing and torch.is_grad_enabled()):
        return results
    origin = needing[0].sum()
    return tuple(result + origin for result in results)
