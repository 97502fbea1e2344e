"""Readable names for the values of a graph, derived from the layers that compute them."""

from __future__ import annotations

import keyword
import re

from golow.lower.ir.graph import Phase

# Reserved words of C++ and names that the emitted program uses; `keyword` has Python's.
_RESERVED = frozenset(
    "alignas alignof and_eq asm auto bitand bitor bool break case catch char class compl const "
    "constexpr const_cast continue default delete do double dynamic_cast else enum explicit "
    "export extern false float for friend goto if inline int long mutable namespace new noexcept "
    "not_eq nullptr operator or_eq private protected public register reinterpret_cast requires "
    "return short signed sizeof static static_assert static_cast struct switch template this "
    "throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t "
    "while xor xor_eq aten torch given ops at c10 std state batch main".split()
)

# Helper operations inside a layer: their names end in the operation.
_GLUE = frozenset("add t view expand detach sum mm clone alias".split())


class Namer:
    """Hands out unique identifiers.

    leaves: paths of the modules without children. Values that such a module computes are named
    after it (``layer1_0_conv1``), all others after their module and operation (``layer1_0_add``).
    """

    def __init__(self, leaves: set[str]) -> None:
        self._leaves = leaves
        self._taken: set[str] = set()

    @staticmethod
    def identifier(text: str) -> str:
        """The text as an identifier of Python and of C++."""
        cleaned = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
        if cleaned[0].isdigit() or keyword.iskeyword(cleaned) or cleaned in _RESERVED:
            cleaned = f"v_{cleaned}"
        # C++ reserves names with two underscores in a row.
        return re.sub("__+", "_", cleaned)

    def free(self, wanted: str) -> str:
        """The identifier itself if it is unused, else with the next free number appended."""
        base = self.identifier(wanted)
        name, number = base, 1
        while name in self._taken:
            name, number = f"{base}_v{number}", number + 1
        self._taken.add(name)
        return name

    def input(self, kind: str, target: str) -> str:
        """Name of an input: its name in the state dict, or its kind and index."""
        return self.free(f"{kind}_{target}" if kind in ("input", "target") else target)

    def node(self, op: str, module: str, phase: Phase) -> str:
        """Base name of a node's values; `free` makes it unique."""
        short = op.split(".")[1].lstrip("_")
        if module and module in self._leaves:  # a model without layers has no path to be named by
            place = module if phase == "forward" else f"{module}_backward"
            return f"{place}_{short}" if short in _GLUE else place
        return f"{module}.{short}" if module else short
