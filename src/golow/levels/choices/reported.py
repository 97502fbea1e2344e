"""Choices made by others before a program runs: golow reports them and does not set them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golow.levels.choices.choice import IN_PYTORCH, WITH_PYTHON, Choice

CPU = Path("/sys/devices/system/cpu")
NO_RANDOM_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of personality(2)
UNKNOWN = "not readable"


def governor(program: Any) -> str:
    """The kernel's rule for the clock of the first core."""
    return _text(CPU / "cpu0/cpufreq/scaling_governor") or UNKNOWN


def smt(program: Any) -> str:
    """Report whether a core runs several hardware threads."""
    return {"1": "on", "0": "off"}.get(_text(CPU / "smt/active"), UNKNOWN)


def addresses(program: Any) -> str:
    """Report whether this process is loaded at random addresses."""
    mode = _text(Path("/proc/sys/kernel/randomize_va_space"))
    own = _text(Path("/proc/self/personality"))
    if not mode or not own:
        return UNKNOWN
    return "off" if mode == "0" or int(own, 16) & NO_RANDOM_ADDRESSES else "random"


def initialisation(program: Any) -> str:
    """Report the origin of the initial weights."""
    found: str = program.workload.initialisation
    return found


def batch_norm(program: Any) -> str:
    """Momentum and epsilon of the module's batch norms, each pair once."""
    from torch.nn.modules.batchnorm import _BatchNorm

    layers = [layer for layer in program.module.modules() if isinstance(layer, _BatchNorm)]
    pairs = {f"momentum {layer.momentum}, epsilon {layer.eps}" for layer in layers}
    return "; ".join(sorted(pairs)) or "no batch norm"


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


CHOICES = (
    Choice(
        name="cpu_governor",
        summary="how the kernel chooses the CPU's clock",
        made_by="the machine's administrator",
        where="/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        read=governor,
        alternatives=(),
    ),
    Choice(
        name="smt",
        summary="whether a core runs two hardware threads",
        made_by="the machine's administrator",
        where="/sys/devices/system/cpu/smt/active",
        read=smt,
        alternatives=(),
    ),
    Choice(
        name="random_addresses",
        summary="whether a process is loaded at random addresses, which moves its data in the "
        "caches",
        made_by="the kernel",
        where="/proc/sys/kernel/randomize_va_space, personality(2)",
        read=addresses,
        alternatives=(),
    ),
    Choice(
        name="initialisation",
        summary="how the weights are initialised; `golow train --init` sets it",
        made_by="PyTorch's modules",
        where="reset_parameters of each torch.nn module",
        levels=WITH_PYTHON,
        read=initialisation,
        changes_results=True,
        alternatives=(),
    ),
    Choice(
        name="batch_norm_settings",
        summary="momentum and epsilon of batch norm, which frameworks choose differently",
        made_by="PyTorch's modules, or the network's author",
        where="torch.nn.BatchNorm2d: momentum=0.1, eps=1e-5",
        levels=IN_PYTORCH,
        read=batch_norm,
        changes_results=True,
        alternatives=(),
    ),
)
