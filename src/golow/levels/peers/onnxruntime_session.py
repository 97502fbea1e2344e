"""A session of ONNX Runtime on an exported model, with the workload's settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from golow.records.errors import Unsupported
from golow.records.workload import Workload

MODEL = "model.onnx"
WITHOUT_TELEMETRY = "ORT_DISABLE_TELEMETRY"


def open_session(onnxruntime: Any, model: Path, options: Any, providers: Sequence[Any]) -> Any:
    """Load the model. Raises `Unsupported` for an operation that the runtime does not have."""
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

    try:
        return onnxruntime.InferenceSession(model, options, providers=providers)
    except NoKernel as error:
        reason = str(error).strip().splitlines()[0]
        raise Unsupported("onnxruntime", f"the runtime refuses it: {reason}") from error


def session_options(onnxruntime: Any, workload: Workload, settings: Mapping[str, Any]) -> Any:
    """The workload's threads, all rewrites of the graph, and what the user chose otherwise."""
    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = workload.threads
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    for name, value in settings.items():
        if name.startswith("session."):
            chosen.add_session_config_entry(name, value)
        elif name == "graph_optimization_level":
            setattr(chosen, name, getattr(onnxruntime.GraphOptimizationLevel, value))
        else:
            setattr(chosen, name, value)
    return chosen


def import_onnxruntime() -> Any:
    """Import the package without its telemetry. From 1.29 on, that stores an identifier in the
    user's home and uploads from its own thread, even while something is timed. The variable is read
    once, by the import, and does not stay in the environment of a program that golow is part of."""
    given = os.environ.get(WITHOUT_TELEMETRY)
    os.environ[WITHOUT_TELEMETRY] = "1"
    try:
        import onnxruntime
    finally:
        del os.environ[WITHOUT_TELEMETRY]
        if given is not None:
            os.environ[WITHOUT_TELEMETRY] = given
    return onnxruntime
