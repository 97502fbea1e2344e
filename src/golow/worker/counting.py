"""Makes one call of a level's program between two switches of a counter, and states in which Python
frames such a call spends its time."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from golow.worker.protocol import CountReport, PythonFrame

WARM_UP = 3  # calls before
WATCHED = 5  # calls whose Python frames are looked at

Stack = tuple[PythonFrame, ...]


def count(call: Callable[[], object], library: Path) -> CountReport:
    """Call between the library's ``golow_begin`` and ``golow_end``; then look at Python's frames.

    The garbage collector is off meanwhile, as when iterations are timed.
    """
    switches = ctypes.CDLL(str(library))
    begin, end = switches.golow_begin, switches.golow_end
    for _ in range(WARM_UP):
        call()
    gc.collect()
    gc.disable()
    try:
        begin()
        call()
        end()
        return CountReport(frames=_heaviest_stack(call))
    finally:
        gc.enable()


def _heaviest_stack(call: Callable[[], object]) -> Stack:
    """The frames of Python, outermost first, in which most of the time passes."""
    watch = _Watch(sys._getframe())
    for _ in range(WATCHED):
        sys.setprofile(watch)
        try:
            call()
        finally:
            sys.setprofile(None)
    spent = watch.spent
    return max(spent, key=lambda stack: spent[stack]) if spent else ()


class _Watch:
    """Adds up nanoseconds by the stack in which they passed; frames up to ``base`` do not count."""

    def __init__(self, base: FrameType) -> None:
        self.spent: Counter[Stack] = Counter()
        self._base = base
        self._stack: Stack = ()
        self._since: int | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        now = time.perf_counter_ns()
        if self._since is not None and self._stack:
            self.spent[self._stack] += now - self._since
        self._stack = self._frames(frame.f_back if event == "return" else frame)
        self._since = time.perf_counter_ns() if self._stack else None

    def _frames(self, frame: FrameType | None) -> Stack:
        found = []
        while frame is not None and frame is not self._base:
            code = frame.f_code
            found.append(PythonFrame(file=code.co_filename, function=code.co_qualname))
            frame = frame.f_back
        return tuple(reversed(found))
