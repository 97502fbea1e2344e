"""Messages of torch during capture: kept for the record, off the terminal."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from torch.export import _trace

LONGEST = 20_000
"""Characters of one message; torch may print a whole graph."""

TRACE = "torch.__trace"  # for torch's own tools: it states everything, to a file


@contextmanager
def kept_messages(said: list[str]) -> Iterator[None]:
    """Append torch's warnings, and what it and its loggers print (dumps of graphs among it), to
    said, each once and cut at `LONGEST`."""
    printed = io.StringIO()
    # torch.export prints the graph of a failed capture to standard error, where golow's progress
    # goes, too. A global of its file stands before Python's own function.
    vars(_trace)["print"] = lambda *texts, **_: print(*texts, file=printed)
    keeper = _Keeper(said)
    before = [(logger, logger.handlers) for logger in _speaking()]
    for logger, _ in before:
        logger.handlers = [keeper]
    try:
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(printed):
            warnings.simplefilter("always")
            yield
    finally:
        for logger, handlers in before:
            logger.handlers = handlers
        said += [f"{one.category.__name__}: {one.message}"[:LONGEST] for one in caught]
        vars(_trace).pop("print", None)
        said += filter(None, [printed.getvalue().strip()[:LONGEST]])
        said[:] = dict.fromkeys(said)


def _speaking() -> list[logging.Logger]:
    """Torch's loggers that have a way out of their own, and the one above them all."""
    named = logging.Logger.manager.loggerDict
    parts = [name for name in named if name.startswith("torch.") and name != TRACE]
    loggers = [logging.getLogger(name) for name in parts]
    return [logging.getLogger("torch"), *(logger for logger in loggers if logger.handlers)]


class _Keeper(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep its text."""
        self.said.append(f"{record.name}: {record.getMessage()}"[:LONGEST])
