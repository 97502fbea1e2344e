"""The machine and the software of a record, and what makes two records not comparable.

Everything comes from files or short commands; nothing heavy is imported, so that this runs in a
parent without torch. A value that cannot be read is empty, never an error.

``root`` is the folder that stands for ``/``: tests pass a made-up one.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import msgspec
import psutil

from golow.measure.gpu import nvml
from golow.records.comparison import Environment
from golow.records.workload import Device, ModelSource
from golow.worker.process import thread_settings

KERNEL_FLAGS = re.compile(
    r"sse4_2|avx2?|avx_vnni|avx512\w*|amx_\w+|fma|f16c|\w*bf16\w*|asimd\w*|sve\w*|i8mm"
)
"""The CPU flags by which vector libraries choose their kernels (x86 and ARM names)."""

THREAD_SETTINGS = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "ATEN_", "ONEDNN_", "DNNL_", "TVM_",
)  # fmt: skip
"""Beginnings of the environment variables that set threads or choose the CPU libraries' kernels."""

PACKAGES = (
    "golow",
    "torch",
    "numpy",
    "scipy",
    "safetensors",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "executorch",
    "apache-tvm",
    "iree-base-compiler",
    "iree-base-runtime",
    "jax",
    "jaxlib",
    "tensorflow-cpu",
    "tensorflow",
    "paddlepaddle",
    "onednn-cpu-gomp",
)

GPU_PACKAGES = (
    "onnxruntime-gpu",
    "tensorrt-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cudnn-frontend",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "cuda-core",
    "cuda-bindings",
    "triton",
    "nvidia-ml-py",
)
"""Packages that a GPU's times depend on besides torch, and the one that reads the GPU."""

CUDA = "CUDA of the driver"

_COMMAND_SECONDS = 10
_UNLIMITED_V1 = 2**62


def environment(model_file: Path | None = None, root: Path = Path("/")) -> Environment:
    """The current environment of this process; model_file: the user's own source, if any."""
    cpu_model, cpu_flags = _cpu(root)
    affinity = _affinity()
    return Environment(
        cpu_model=cpu_model,
        cpu_flags=cpu_flags,
        cores=os.cpu_count() or len(affinity),
        affinity=affinity,
        memory_bytes=psutil.virtual_memory().total,
        governor=_governor(root, affinity),
        kernel=f"{platform.system()} {platform.release()}",
        container_limits=container_limits(root),
        gpu=_gpu_names(root),
        driver=_driver_version(root),
        python=platform.python_version(),
        versions=_versions(),
        thread_settings=_thread_settings(),
        model_git=git_state(model_file) if model_file is not None else {},
    )


def environment_of(source: ModelSource, threads: int) -> Environment:
    """The environment of a workload's runs: with the git state of the model's own file, and the
    thread settings that the workers get."""
    machine = environment(Path(source.name) if source.kind in ("file", "program") else None)
    settings = {**machine.thread_settings, **thread_settings(threads)}
    return msgspec.structs.replace(machine, thread_settings=settings)


def unlike(first: Environment, second: Environment, device: Device = "cpu") -> list[str]:
    """The differences because of which times of the two must not be compared; empty if there are
    none.

    Each is a fragment such as ``the CPU (AMD EPYC, Intel Xeon)``, first before second. Which cores
    a process has matters less than how many, so only their number counts. device: where both ran;
    what affects only a GPU's times counts only there. Workers use one GPU with separate cores,
    so a machine with more GPUs and cores is the same there; more memory is the same everywhere.
    """
    named = {
        "the CPU": (first.cpu_model, second.cpu_model),
        "the CPU's flags": _only_in_each(first.cpu_flags, second.cpu_flags),
        "the number of cores allowed": (len(first.affinity), len(second.affinity)),
        "the frequency governor": (first.governor, second.governor),
        "the container's limit of cores": (
            first.container_limits.get("cpu.max", ""),
            second.container_limits.get("cpu.max", ""),
        ),
        "the GPU": (sorted(set(first.gpu)), sorted(set(second.gpu))),
        "the GPU driver": (first.driver, second.driver),
        "the thread settings": (first.thread_settings, second.thread_settings),
        "Python": (_minor(first.python), _minor(second.python)),
    }
    if device == "cpu":
        named["the number of cores"] = (first.cores, second.cores)
    decisive = [
        name for name in GPU_PACKAGES if name != "nvidia-ml-py"
    ]  # only reads the GPU; does not affect times
    for name in ("golow", "torch", "g++", *((*decisive, CUDA) if device == "cuda" else ())):
        named[name] = (first.versions.get(name, ""), second.versions.get(name, ""))
    return [
        f"{name} ({_text(before)}, {_text(after)})"
        for name, (before, after) in named.items()
        if before != after
    ]


def _only_in_each(first: Iterable[str], second: Iterable[str]) -> tuple[list[str], list[str]]:
    return sorted(set(first) - set(second)), sorted(set(second) - set(first))


def _minor(version: str) -> str:
    """3.12 of 3.12.4: patch releases do not change the interpreter's speed."""
    return ".".join(version.split(".")[:2])


def _text(value: object) -> str:
    """A value as text for a fragment; ``none`` if empty."""
    if isinstance(value, dict):
        return " ".join(f"{name}={setting}" for name, setting in sorted(value.items())) or "none"
    if isinstance(value, list | tuple):
        return " ".join(value) or "none"
    return str(value) or "none"


# ---------------------------------------------------------------- the machine


def _cpu(root: Path) -> tuple[str, tuple[str, ...]]:
    """Model name, and the flags by which kernels are chosen, in alphabetical order."""
    fields: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "") or fields.get("Features", "")
    kept = sorted(flag for flag in set(flags.split()) if KERNEL_FLAGS.fullmatch(flag))
    return fields.get("model name", "") or platform.machine(), tuple(kept)


def _affinity() -> tuple[int, ...]:
    """The cores that this process may use, which its workers inherit."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _governor(root: Path, cores: tuple[int, ...]) -> str:
    """The frequency governor of the cores; several joined by commas; empty if unreadable."""
    folders = (root / f"sys/devices/system/cpu/cpu{core}/cpufreq" for core in cores)
    return ",".join(sorted({_read(folder / "scaling_governor") for folder in folders} - {""}))


def _gpu_names(root: Path) -> tuple[str, ...]:
    """The NVIDIA GPUs that the kernel driver lists, in the order of their bus addresses."""
    cards = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    models = (re.search(r"^Model:\s*(.+)$", _read(card), re.MULTILINE) for card in cards)
    return tuple(model.group(1).strip() for model in models if model)


def _driver_version(root: Path) -> str:
    """The NVIDIA kernel driver's version, as in ``580.159.04``; empty without one."""
    text = _read(root / "proc/driver/nvidia/version")
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found.group(1) if found else ""


# ---------------------------------------------------------------- the container's limits


def container_limits(root: Path = Path("/")) -> dict[str, str]:
    """The limits of this process's control group, ``{}`` if there are none.

    ``cpu.max``: microseconds allowed per period, and the period; ``memory.max``: bytes. Both use
    the names of control groups version 2, whichever version the system has.
    """
    limits: dict[str, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            folders = _upwards(root / "sys/fs/cgroup" / controller, group)
            for name, limit in _LIMITS.get(controller, {}).items():
                found = next((text for folder in folders if (text := limit(folder))), "")
                if found:
                    limits[name] = found
    return limits


def _upwards(mount: Path, group: str) -> list[Path]:
    """The group's folder and those above it: a limit on any of them applies.

    Inside a container the path may be the host's, which does not exist here; the mount itself,
    which comes last, is then the container's group.
    """
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _cpu_limit(folder: Path) -> str:
    text = _read(folder / "cpu.max")
    return "" if text.startswith("max") else text


def _memory_limit(folder: Path) -> str:
    text = _read(folder / "memory.max")
    return "" if text == "max" else text


def _cpu_limit_v1(folder: Path) -> str:
    quota = _read(folder / "cpu.cfs_quota_us")
    return f"{quota} {_read(folder / 'cpu.cfs_period_us')}" if quota and int(quota) > 0 else ""


def _memory_limit_v1(folder: Path) -> str:
    text = _read(folder / "memory.limit_in_bytes")
    return text if text and int(text) < _UNLIMITED_V1 else ""


_LIMITS: dict[str, dict[str, Callable[[Path], str]]] = {
    "": {"cpu.max": _cpu_limit, "memory.max": _memory_limit},  # version 2 names no controller
    "cpu": {"cpu.max": _cpu_limit_v1},
    "memory": {"memory.max": _memory_limit_v1},
}


# ---------------------------------------------------------------- the software


def _versions() -> dict[str, str]:
    """Versions of the installed packages (from their metadata, without importing them) and the
    first line of the C++ compiler's version output."""
    versions = {}
    for package in (*PACKAGES, *GPU_PACKAGES):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    compiler = _output("g++", "--version")
    first = compiler.partition("\n")[0].removeprefix("g++ ") if compiler else ""
    cuda = nvml.cuda_version()
    return versions | ({"g++": first} if first else {}) | ({CUDA: cuda} if cuda else {})


def _thread_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(THREAD_SETTINGS)}


def git_state(file: Path) -> dict[str, str]:
    """``commit``, ``path`` in the repository and ``dirty`` (yes or no) of a file.

    ``{}`` if the file is not in a git repository or git is missing. A file that git does not
    track, or that has changed since the commit, is dirty; ``commit`` is empty before the first one.
    """
    file = file.resolve()
    # No locks and no monitor process: reading a user's repository must leave no traces.
    git = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(file.parent))
    folder = _output(*git, "rev-parse", "--show-prefix")
    # An ignored file would otherwise be omitted, like an unchanged one.
    changes = _output(*git, "status", "--porcelain", "--ignored", "--", str(file))
    if folder is None or changes is None:
        return {}
    return {
        "commit": _output(*git, "rev-parse", "--verify", "--quiet", "HEAD") or "",
        "dirty": "yes" if changes else "no",
        "path": folder + file.name,
    }


# ---------------------------------------------------------------- reading


def _read(path: Path) -> str:
    """The file's text without surrounding whitespace; empty if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _output(*command: str) -> str | None:
    """The command's output; None if it is missing, fails or takes longer than ten seconds."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
