"""Artifacts that tests change."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golow.artifact.container import SEAL
from golow.artifact.manifest import MANIFEST


def changed(file: Path, target: Path, entries: Mapping[str, bytes]) -> Path:
    """Write the artifact with other content of these entries, sealed again."""
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if name != SEAL}
    content |= entries
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
        archive.writestr(SEAL, json.dumps(digests))
    return target


def with_manifest(file: Path, target: Path, **fields: Any) -> Path:
    """Write the artifact with other fields in its manifest."""
    return changed(file, target, {MANIFEST: json.dumps(manifest(file) | fields).encode()})


def manifest(file: Path) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        found: dict[str, Any] = json.loads(archive.read(MANIFEST))
    return found


def names(file: Path) -> list[str]:
    with zipfile.ZipFile(file) as archive:
        return archive.namelist()


def in_new_process(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program that has these arguments in ``sys.argv``."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
