"""C++ names for the values of a graph: their own, unless C++ or the program uses the name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from golow.lower.ir.graph import Graph

# Names that the emitted program uses, and words of C++ that Python allows as names.
_RESERVED = frozenset(
    "Batch Buffer Constant Operation Parameter Program Result Tensor batch dropout_scale golow "
    "OperationListener listener make_program mark nanoseconds none number operations ops "
    "probability products result samples seed step updated at c10 std "
    "EOF INFINITY NAN NULL errno linux unix stderr stdin stdout "
    "alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t "
    "class co_await co_return co_yield compl concept const const_cast consteval constexpr "
    "constinit continue decltype default delete do double dynamic_cast else enum explicit export "
    "extern false float for friend goto if inline int long mutable namespace new noexcept not "
    "not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires "
    "return short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename union unsigned using virtual void "
    "volatile wchar_t while xor xor_eq and break import module final override".split()
)


class CppNames:
    """Hands out unique C++ identifiers."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def free(self, wanted: str) -> str:
        """The name as an identifier if it is unused, else with the next free number appended."""
        base = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_") or "value"
        base = re.sub("__+", "_", f"v_{base}" if base[0].isdigit() else base)
        name, number = base, 1
        while name in self._taken or name in _RESERVED:
            name, number = f"{base}_v{number}", number + 1
        self._taken.add(name)
        return name


def value_names(graph: Graph, same_as: Mapping[str, str], names: CppNames) -> dict[str, str]:
    """The C++ name of every value; one in ``same_as`` shares the name of the value given there."""
    found = {name: names.free(name) for name in graph.values() if name not in same_as}
    return found | {name: found[other] for name, other in same_as.items()}
