"""Base of objects in the memory of one process: they refuse to be copied or pickled, with an
error."""

from __future__ import annotations

from typing import Any, ClassVar

from golow.records.errors import GolowError


class Uncopied:
    """Base of what Python cannot copy: `copy` and `pickle` raise a `GolowError`.

    instead: what to type for another one.
    """

    instead: ClassVar[str] = "call golow.compile again, in the other process if there is one."

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise `GolowError`."""
        raise GolowError(
            "a compiled module cannot be copied or pickled: its plan and its weights are in the "
            "memory of this process",
            self.instead,
        )
