"""Tests, without importing torch, whether there is a GPU and a PyTorch that can use it."""

from __future__ import annotations

import os
import runpy
from importlib.util import find_spec
from pathlib import Path

from golow.levels.probe import Probe

DRIVER = Path("/proc/driver/nvidia/gpus")
DEVICE = Path("/dev/nvidia0")


def probe() -> Probe:
    """Probe for a visible NVIDIA GPU and a torch that was built for CUDA."""
    if not has_gpu():
        return Probe(False, "there is no NVIDIA GPU", "run it on a machine with one")
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return Probe(False, "CUDA_VISIBLE_DEVICES hides every GPU", "unset CUDA_VISIBLE_DEVICES")
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return Probe(False, "torch is not installed", "pip install 'torch>=2.11,<2.14'")
    built_for = cuda_of(Path(spec.origin).with_name("version.py"))
    if built_for is None:
        return Probe(False, "torch is built without CUDA", "install a CUDA build of torch")
    return Probe(True)


def has_gpu() -> bool:
    """True if the NVIDIA driver has a GPU; uses NVML if its package is installed."""
    try:
        import pynvml
    except ImportError:
        return DEVICE.exists() or (DRIVER.is_dir() and any(DRIVER.iterdir()))
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    try:
        return bool(pynvml.nvmlDeviceGetCount() > 0)
    finally:
        pynvml.nvmlShutdown()


def cuda_of(version_file: Path) -> str | None:
    """The CUDA version that torch was built for, from its ``version.py``, which contains only
    constants; None for a build without CUDA."""
    found: str | None = runpy.run_path(str(version_file)).get("cuda")
    return found
