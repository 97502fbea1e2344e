"""Where things are stored: the project, its documentation, and the programs that tests start."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
WORKERS = SUPPORT / "worker_programs"
