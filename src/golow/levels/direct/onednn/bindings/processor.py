"""The processor, by which oneDNN chooses its code, and golow's compiler too."""

from __future__ import annotations

from pathlib import Path


def processor() -> str:
    """Return model and instruction sets of the CPU."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return " ".join(
        line for line in dict.fromkeys(lines) if line.startswith(("model name", "flags"))
    )
