# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime on the CPU."""

import importlib
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from workloads import Workload

from peers.peer import Peer, Prepared


class OnnxRuntime(Peer):
    name = "onnxruntime"
    description = "session.run(None, {name: numpy array, ...})"
    requires = ("onnxruntime", "onnx", "onnxscript")

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        session, names = load(workload, threads)
        run = session.run
        match names:
            case [name]:
                return Prepared(lambda x: run(None, {name: x}), Tensor.numpy, first)
            case [first_name, second_name, third_name]:
                return Prepared(
                    lambda a, b, c: run(None, {first_name: a, second_name: b, third_name: c}),
                    Tensor.numpy,
                    first,
                )
            case _:
                return Prepared(
                    lambda *arrays: run(None, dict(zip(names, arrays, strict=True))),
                    Tensor.numpy,
                    first,
                )


class OnnxRuntimeBinding(Peer):
    """The way that the ONNX Runtime guide gives for repeated calls: memory bound once."""

    name = "onnxruntime_binding"
    description = "input.update_inplace(numpy array); session.run_with_iobinding(binding)"
    requires = OnnxRuntime.requires

    def prepare(self, workload: Workload, threads: int) -> Prepared:
        session, names = load(workload, threads)
        ortvalue = importlib.import_module("onnxruntime").OrtValue.ortvalue_from_numpy
        values = [ortvalue(tensor.numpy()) for tensor in workload.inputs()]
        with torch.no_grad():
            output = ortvalue(workload.module()(*workload.inputs()).numpy())
        binding = session.io_binding()
        for name, value in zip(names, values, strict=True):
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(session.get_outputs()[0].name, output)

        def call(*arrays: Any) -> Any:
            for value, array in zip(values, arrays, strict=True):
                value.update_inplace(array)
            session.run_with_iobinding(binding)
            return output

        return Prepared(call, Tensor.numpy, lambda result: torch.from_numpy(result.numpy()))


def load(workload: Workload, threads: int) -> tuple[Any, list[str]]:
    """Export the module and return a session with the names of its inputs."""
    onnxruntime: Any = importlib.import_module("onnxruntime")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            workload.module(), workload.inputs(), dynamo=True, verbose=False
        )
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="hostjit-bench-") as folder:
        path = Path(folder) / "model.onnx"
        program.save(path)
        model = path.read_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session, [argument.name for argument in session.get_inputs()]


def first(results: list[Any]) -> Tensor:
    return torch.from_numpy(results[0])
