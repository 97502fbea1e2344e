"""Pages of reports in tests: hostile names, a comparison with them, and what a browser finds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golow.records.comparison import Block, Check, Comparison, Run, TensorError
from support.pages.browser import MISSING, Browser, is_installed
from support.records import audits

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>=cmd|'/C'!A1"
TAG = "<img src=x onerror=window.hacked=1>"  # of a level, whose name is that of a file
AXE = Path(__file__).parent / "axe" / "axe.min.js"
in_a_browser = pytest.mark.skipif(not is_installed(), reason=MISSING)


def violations(window: Browser) -> list[Any]:
    """What axe-core objects to in the page that is open."""
    window.run(AXE.read_text())
    found: list[Any] = window.run_later(
        "axe.run().then(found => arguments[0](found.violations.map("
        "one => [one.id, one.nodes.slice(0, 3).map(node => node.html.slice(0, 200))])))"
    )
    return found


def in_page(page: Path, name: str) -> Any:
    """The data in the page's element of that name."""
    [found] = re.findall(rf'id="{name}">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found)


# ---------------------------------------------------------------- a comparison


def tensor(name: str, error: float = 1e-7) -> TensorError:
    limit, eager = 3e-7, 1e-7
    passed = error <= limit
    return TensorError(
        name=name, elements=9, scale=1.0, error=error, eager_error=eager, limit=limit, passed=passed
    )


def level(name: str, seconds: float, word: str = "faster") -> Run:
    """A level whose block 3 was disturbed."""
    blocks = tuple(
        Block(round=n, position=0, host_ns=(int(seconds * 1e9) + n,), contended=n == 3)
        for n in range(8)
    )
    tensors = (tensor(f"{EVIL}\x1b[31m"), tensor("output/0", 2e-7))
    made = audits.run(name, audits.ratio(seconds / 0.04, word), seconds=seconds)  # type: ignore[arg-type]
    check = Check(verdict="match", worst=tensors[1], tensors=tensors)
    return msgspec.structs.replace(
        made, blocks=blocks, check=check, notes=(EVIL,), log=f"{EVIL}\x1b[2J\u2028"
    )


RUNS = (level("eager", 0.04, "same"), level(TAG, 0.03), level("onednn", 0.0101))
COMPARED = Comparison(
    format_version=1,
    id="one",
    created="2026-11-25",
    workload=audits.workload(model=EVIL),
    race=audits.RACE,
    runs=RUNS,
    notes=(EVIL, "\u2029"),
)
