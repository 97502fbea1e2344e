"""The errors that the stages raise, for who can fix them: the user, another level, nobody."""

from __future__ import annotations


class GolowError(Exception):
    """An error that the user can fix: the message says what is wrong, ``hint`` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Both, as a traceback and a notebook show them."""
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class Unsupported(Exception):
    """The level does not support this workload. No other exception means this.

    node: the graph's name of the operation. module: the path of the layer that it comes from.
    """

    def __init__(self, level: str, reason: str, node: str = "", module: str = "") -> None:
        self.level, self.reason, self.node, self.module = level, reason, node, module
        super().__init__(f"{level} does not support this workload: {self.words}")

    @property
    def words(self) -> str:
        """The reason, with the node and its layer where there is one."""
        if not self.node:
            return self.reason
        # What the outermost forward calls itself is in no layer.
        layer = f"layer {self.module}" if self.module else "in the model's own forward"
        return f"{self.reason} (node {self.node}, {layer})"


class WorkerFailure(Exception):
    """A worker died, hung, ran out of memory or broke the protocol; this is a recorded result."""

    def __init__(self, kind: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.log = kind, message, log


class OutOfTime(Exception):
    """A race had to end before the worker of that level answered. No failure: the machine may be
    busy. The worker still owes the answer, and can only be closed."""

    def __init__(self, level: str, message: str) -> None:
        super().__init__(f"{level}: {message}")
        self.level, self.message = level, message
