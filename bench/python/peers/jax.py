# SPDX-License-Identifier: Apache-2.0
"""JAX: the formula under jax.jit, on the CPU unless JAX_PLATFORMS says otherwise."""

import functools
import importlib
import os
from typing import Any

import torch.utils.dlpack
from torch import Tensor
from workloads import Workload

from peers.peer import Peer, Prepared


class Jax(Peer):
    name = "jax"
    description = "jax.jit(function)(parameters, *arrays).block_until_ready()"
    requires = ("jax", "jaxlib")

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        jax, ops, parameters = load(workload)

        def function(parameters: Any, *inputs: Any) -> Any:
            return workload.formula(ops, parameters, *inputs)

        compiled = jax.jit(function)

        def call(*inputs: Any) -> Any:
            return compiled(parameters, *inputs).block_until_ready()

        return Prepared(call, from_torch, to_torch, functools.partial(compiled, parameters))


class JaxConstants(Peer):
    """Parameters captured by the function: no pytree of parameters to walk at every call."""

    name = "jax_constants"
    description = "jax.jit(function that captured its parameters)(*arrays).block_until_ready()"
    requires = Jax.requires

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        jax, ops, parameters = load(workload)
        compiled = jax.jit(lambda *inputs: workload.formula(ops, parameters, *inputs))

        def call(*inputs: Any) -> Any:
            return compiled(*inputs).block_until_ready()

        return Prepared(call, from_torch, to_torch, compiled)


class JaxOps:
    def __init__(self, jax: Any) -> None:
        self.relu = jax.nn.relu
        self.tanh = jax.numpy.tanh
        self.jax = jax

    def gelu(self, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=False)

    def layer_norm(self, x: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered * centered).mean(-1, keepdims=True)
        return centered * self.jax.lax.rsqrt(variance + 1e-5)

    def self_attention(self, projected: Any, heads: int, causal: bool) -> Any:
        batch, steps, width = projected.shape
        split = projected.reshape(batch, steps, 3, heads, width // 3 // heads)
        query, key, value = (split[:, :, index] for index in range(3))
        mixed = self.jax.nn.dot_product_attention(query, key, value, is_causal=causal)
        return mixed.reshape(batch, steps, width // 3)


def load(workload: Workload) -> tuple[Any, JaxOps, dict[str, Any]]:
    """Import JAX and convert the parameters."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax: Any = importlib.import_module("jax")
    state = workload.module().state_dict()
    return jax, JaxOps(jax), {name: from_torch(value) for name, value in state.items()}


def from_torch(tensor: Tensor) -> Any:
    return importlib.import_module("jax").numpy.array(tensor.cpu().numpy())


def to_torch(array: Any) -> Tensor:
    return torch.utils.dlpack.from_dlpack(array).clone()
