"""The generated kernels of a plan as text to read: their macros written out, the graph's names in
comments. What is compiled has no such comments, so that layers share its code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR
from golow.levels.direct.cudnn.steps.built_plan import Built, KernelCall
from golow.lower.plan.plan import Plan, Step

GENERATED = frozenset(
    FOLDER / name
    for name in (
        "copies.cu",
        "elements.cu",
        "fused_pointwise.cu",
        "joined_copies.cu",
        "pointwise.cu",
    )
)
"""Files whose macros are defined by generated code."""

MACRO = re.compile(r"#define (\w+) (.*)")


class _Use(NamedTuple):
    """A step that runs a kernel."""

    position: int
    step: Step
    call: KernelCall


def kernel_texts(built: Built) -> tuple[str, ...]:
    """Every generated kernel once, in the order of the steps that run it first."""
    uses: dict[str, list[_Use]] = {}
    for position, (step, call) in enumerate(zip(built.plan.steps, built.calls, strict=True)):
        if isinstance(call, KernelCall) and call.kernel.file in GENERATED:
            uses.setdefault(call.kernel.source, []).append(_Use(position, step, call))
    return tuple("\n".join(_text(built.plan, found)) for found in uses.values())


def _text(plan: Plan, uses: Sequence[_Use]) -> Iterator[str]:
    first = uses[0]
    others = ", ".join(str(use.position) for use in uses[1:])
    yield f"// step {first.position}: {_step_text(plan, first.step)}"
    if others:
        yield f"// the same code in steps {others}"
    waiting = dict(first.call.names)
    for line in _expanded(first.call.kernel):
        name = next((name for name in waiting if _makes(line, name)), "")
        yield f"{line}  // {waiting.pop(name)}" if name else line


def _step_text(plan: Plan, step: Step) -> str:
    """``fused of layer1.0.relu, forward: conv_3, add_1 -> relu_4``."""
    read, written = (
        ", ".join(plan.buffers[operand.buffer].name for operand in operands)
        for operands in (step.reads, step.writes)
    )
    layers = ", ".join(module or "(top)" for module in dict.fromkeys(step.modules))
    return f"{step.operation} of {layers}, {step.phase}: {read} -> {written}"


def _makes(line: str, name: str) -> bool:
    """True if the line is where the kernel first has what belongs to this C name."""
    return re.search(rf"\b{name}(_values|_from)?( = |;)", line) is not None


def _expanded(kernel: Kernel) -> Iterator[str]:
    """The kernel's function with its macros written out, and what the code defines before it."""
    code = kernel.code.replace(VECTOR, "").replace(VALUES, "").replace(" \\\n", "\n")
    before, macros = _parted(code)
    yield from before

    def written(text: str) -> str:
        return re.sub(r"\w+", lambda found: " ".join(macros.get(found[0], [found[0]])), text)

    lines = kernel.source[len(kernel.code) :].splitlines()
    for line in lines[next(i for i, text in enumerate(lines) if "__global__" in text) :]:
        indent = line[: len(line) - len(line.lstrip())]
        for each in macros.get(line.strip(), [line.strip()]):
            yield f"{indent}{written(each)}".rstrip()


def _parted(code: str) -> tuple[list[str], dict[str, list[str]]]:
    """The generated lines that are not macros, and the lines of each macro."""
    before: list[str] = []
    macros: dict[str, list[str]] = {}
    last: list[str] | None = None
    for line in code.splitlines():
        found = MACRO.fullmatch(line) or re.fullmatch(r"#define (\w+)()", line)
        if found:
            last = macros[found[1]] = [each for each in re.split(r"(?<=;) ", found[2]) if each]
        elif last is not None and line.startswith("  "):
            last.append(line.strip())
        elif line.strip():
            before.append(line)
            last = None
    return before, macros
