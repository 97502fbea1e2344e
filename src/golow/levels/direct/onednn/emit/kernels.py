"""The generated kernels of a project: their numbers and their files."""

from __future__ import annotations

from collections.abc import Iterable

from golow.levels.direct.onednn.run.kernel_compilation import FLAGS, LONG, source_of

# The linker's are not the compiler's.
KERNEL_FLAGS = tuple(flag for flag in FLAGS if flag != "-shared")

HEADER = """// The generated kernels. Each computes the parts of a step that its numbers describe.
#pragma once

namespace golow {

/// The threads of an OpenMP library.
struct Pool {
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned);
  int (*thread)(void);
  int (*threads)(void);
};
using Kernel = void (*)(void* const*, const long*, const Pool*);

extern "C" {
/// The vectors that they were compiled for: 512 for AVX-512, 2 for AVX2, else 0.
extern const int kernels_need;
"""
NEED = """
#ifdef __AVX512F__
extern "C" const int kernels_need = 512;
#elif defined(__AVX2__)
extern "C" const int kernels_need = 2;
#else
extern "C" const int kernels_need = 0;
#endif
"""
HIDDEN = '__attribute__((visibility("hidden")))'


class Kernels:
    """Short ones are compiled together, as golow does it; each long one by itself."""

    def __init__(self, codes: Iterable[str]) -> None:
        different = sorted(set(codes))
        self._short = [code for code in different if len(code) <= LONG]
        self._long = [code for code in different if len(code) > LONG]
        self._numbers = {code: k for k, code in enumerate((*self._short, *self._long))}

    def name(self, code: str) -> str:
        """The function's name."""
        return f"kernel_{self._numbers[code]}"

    def files(self) -> dict[str, str]:
        """The sources by their names, with the header."""
        declared = (
            f"void kernel_{number}(void* const*, const long*, const Pool*);\n"
            for number in self._numbers.values()
        )
        found = {
            "kernels.h": HEADER + "".join(declared) + "}\n\n}  // namespace golow\n",
            "kernels.cpp": source_of(self._short) + NEED,
        }
        for number, code in enumerate(self._long, len(self._short)):
            found[f"kernels_{number}.cpp"] = source_of([code], number)
        return found
