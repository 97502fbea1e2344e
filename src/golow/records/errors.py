"""The errors that the stages raise: errors of the user, limits of a level, and failures of a
worker."""

from __future__ import annotations

from typing import Any


class GolowError(Exception):
    """An error that the user can fix: ``message`` states the fault, ``hint`` the next step.

    Both are written in the words of the command line. python_hint: a different hint for Python
    users, if replacing options with arguments is not enough.
    """

    def __init__(self, message: str, hint: str = "", *, python_hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.python_hint = python_hint or hint

    def __str__(self) -> str:
        """Message and hint for Python users, as shown by a traceback or a notebook."""
        from golow.records.spelling import in_python

        text = f"{self.message}\n  {self.python_hint}" if self.python_hint else self.message
        return in_python(text)


class Unfinished(GolowError):
    """An error after something was measured: ``record`` holds that."""

    def __init__(self, error: GolowError, record: Any) -> None:
        super().__init__(error.message, error.hint, python_hint=error.python_hint)
        self.record = record


class Unsupported(Exception):
    """The level does not support this workload. No other exception means this.

    node: the graph's name of the operation. module: the path of the layer that it comes from.
    """

    def __init__(self, level: str, reason: str, node: str = "", module: str = "") -> None:
        self.level, self.reason, self.node, self.module = level, reason, node, module
        super().__init__(f"{level} does not support this workload: {self.words}")

    @property
    def words(self) -> str:
        """The reason, with the node and its layer if they are known."""
        if not self.node:
            return self.reason
        # Operations of the outermost forward belong to no layer.
        layer = f"layer {self.module}" if self.module else "in the model's own forward"
        return f"{self.reason} (node {self.node}, {layer})"


class WorkerFailure(Exception):
    """A worker died, hung, ran out of memory or broke the protocol; this is a recorded result."""

    def __init__(self, kind: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.log = kind, message, log


class OutOfTime(Exception):
    """A race had to end before the worker of that level answered. This is not a failure: the
    machine may be busy. The worker still owes the answer, and can only be closed."""

    def __init__(self, level: str, message: str) -> None:
        super().__init__(f"{level}: {message}")
        self.level, self.message = level, message
