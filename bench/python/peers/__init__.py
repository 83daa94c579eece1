# SPDX-License-Identifier: Apache-2.0
"""The systems that the benchmarks compare, by name, in the order of the tables."""

from peers.aotinductor import AotInductor
from peers.eager import Eager
from peers.floor import Floor
from peers.hostjit import (
    HostJit,
    HostJitEvaluator,
    HostJitInductor,
    HostJitReusing,
    TorchCompileHostJit,
)
from peers.jax import Jax, JaxConstants
from peers.onnxruntime import OnnxRuntime, OnnxRuntimeBinding
from peers.openvino import OpenVino
from peers.peer import Peer, Prepared
from peers.tinygrad import Tinygrad
from peers.torch_compile import TorchCompile, TorchCompileCppWrapper, TorchCompileFreezing
from peers.torchscript import TorchScript

__all__ = ["PEERS", "Peer", "Prepared"]

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Eager(),
        TorchCompile(),
        TorchCompileCppWrapper(),
        TorchCompileFreezing(),
        AotInductor(),
        TorchScript(),
        OnnxRuntime(),
        OnnxRuntimeBinding(),
        Jax(),
        JaxConstants(),
        OpenVino(),
        Tinygrad(),
        HostJit(),
        HostJitEvaluator(),
        HostJitReusing(),
        HostJitInductor(),
        TorchCompileHostJit(),
        Floor(),
    )
}
