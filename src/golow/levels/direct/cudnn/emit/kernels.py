"""The kernels of a project: their names, their sources, and their code for the GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.early_launch import waiting
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.spelling import listed, single, text

HEADER = """// The kernels: the module of each among the constants, and its name there.
#pragma once

#include "support/device.h"

namespace golow {

"""
INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Kernels as Compiled

Compile: TypeAlias = "Callable[[str, list[str]], Compiled]"
"""Compiles these instantiations of a source."""


class Kernels:
    """Numbers kernels as they are requested."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._modules: dict[str, str] = {}  # names, by source

    def call(self, kernel: Kernel) -> str:
        """The kernel and its launch, as arguments of a step."""
        source = kernel.source
        module = f"{kernel.file.stem}_{len(self._modules)}"
        self._modules.setdefault(source, module)
        number = self._numbers.setdefault((source, kernel.expression), len(self._numbers))
        launch = listed((listed(kernel.grid), listed(kernel.block), kernel.shared))
        return f"kernel_{number}, {launch}"

    def files(self, constants: Constants, compiled: Compile) -> dict[str, str]:
        """The sources by their names, with the header; their code goes to the constants."""
        expressions = defaultdict(list)
        for source, expression in self._numbers:
            expressions[source].append(expression)
        lines: dict[int, str] = {}
        found: dict[str, str] = {}
        for source, wanted in expressions.items():
            name = self._modules[source]
            code = compiled(source, sorted(wanted))
            stored = constants.add(name, np.frombuffer(code.code, np.uint8))
            for expression in wanted:
                number = self._numbers[source, expression]
                fields = listed((text(stored), text(code.symbols[expression].decode())))
                lines[number] = (
                    f"/// {_one_line(expression)}, in kernels/{name}.cu\n"
                    f"inline constexpr Kernel kernel_{number} = {fields};\n"
                )
            found[f"kernels/{name}.cu"] = waiting(source)
        body = "".join(lines[number] for number in sorted(lines))
        return {"kernels.h": f"{HEADER}{body}\n}}  // namespace golow\n", **found}


def numbers(kernel: Kernel) -> str:
    """Arguments that a kernel gets by value."""
    return listed(map(_number, kernel.scalars))


def _number(scalar: np.generic) -> str:
    name = scalar.dtype.name
    if name == "float32":
        return single(float(scalar))
    if name == "float64":
        return repr(float(scalar))
    if name in INTEGERS:
        return f"std::{name}_t{{{scalar}{'u' if name[0] == 'u' else ''}}}"
    raise ValueError(f"a kernel gets a {name} by value")


def _one_line(words: str) -> str:
    return " ".join(words.split())
