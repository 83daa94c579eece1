# SPDX-License-Identifier: Apache-2.0
"""OpenVINO on the CPU."""

import importlib
import sys
from typing import Any

import torch
from torch import Tensor
from workloads import Workload

from peers.peer import Peer, Prepared


class OpenVino(Peer):
    name = "openvino"
    description = "request.infer([numpy array, ...], share_inputs=True, share_outputs=True)"
    requires = ("openvino",)

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        # Without its telemetry, which forks and reports every conversion.
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
        openvino: Any = importlib.import_module("openvino")
        inputs = workload.inputs()
        model = openvino.convert_model(
            torch.export.export(workload.module(), inputs), example_input=inputs
        )
        configuration = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        infer = openvino.compile_model(model, "CPU", configuration).create_infer_request().infer

        def call(*arrays: Any) -> Any:
            return infer(arrays, share_inputs=True, share_outputs=True)

        return Prepared(call, Tensor.numpy, lambda result: torch.from_numpy(result[0].copy()))
