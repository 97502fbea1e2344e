"""The processor, by which oneDNN chooses its code, and golow's compiler too."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_SETS = (
    "abm", "adx", "aes", "amx", "avx", "bmi", "f16c", "fma", "gfni", "movbe", "pclmul", "popcnt",
    "sha", "sse", "ssse", "vaes", "vpclmul",
)  # fmt: skip
"""How the system's flags begin that name instructions a compiler may use."""


def processor() -> str:
    """Return model and instruction sets of the CPU."""
    lines = _information().splitlines()
    return " ".join(
        line for line in dict.fromkeys(lines) if line.startswith(("model name", "flags"))
    )


def model_name() -> str:
    """Return the model of the CPU; empty where the system does not report it."""
    return _value("model name")


def instruction_sets() -> tuple[str, ...]:
    """Return the instruction sets that compiled code may use here, in order."""
    return tuple(sorted(flag for flag in _value("flags").split() if flag.startswith(_SETS)))


def _value(key: str) -> str:
    lines = (line.partition(":") for line in _information().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")


@cache
def _information() -> str:
    return Path("/proc/cpuinfo").read_text()
