"""Advice in words: each rule's figures, and the command that shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from golow.programs.profiling.profile_record import Finding
from golow.records.workload import Workload
from golow.report.command import INDENT, command_lines
from golow.report.console import visible
from golow.report.recipes import lines_to_paste
from golow.report.units import bytes_text, count_text, seconds_text, share_text

MOST = 5
CAUTION = "profiler"


TITLE = "What to do about it"


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """At most five findings in their order; the same at several levels counts once. A caution about
    the figures comes last, and always."""
    rules: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.name in TEXTS:  # a newer golow may have other rules
            rules.setdefault(finding.name, []).append(finding)
    cautions = [rules.pop(CAUTION)] if CAUTION in rules else []
    return [*list(rules.values())[: MOST - len(cautions)], *cautions]


def words(alike: Sequence[Finding]) -> str:
    """The text of the first one, and the other levels' names."""
    first, *others = alike
    names = dict.fromkeys(finding.level for finding in others)
    likewise = f" Likewise at {_listed(list(names))}." if names else ""
    return f"{TEXTS[first.name](first)}{likewise}"


def render_advice(findings: Sequence[Finding], workload: Workload, console: Console) -> None:
    """Print the findings, each with the line that gives the level that was measured to be
    faster."""
    shown = grouped(findings)
    if not shown:
        return
    console.print()
    console.print(Text(TITLE, style="bold"))
    for number, alike in enumerate(shown, start=1):
        console.print(Text(_item(number, alike, workload, console.width)), soft_wrap=True)


def _item(number: int, alike: Sequence[Finding], workload: Workload, width: int) -> str:
    """The text, the line to paste and the command, indented below a number."""
    first, text = alike[0], visible(f"{number}. {words(alike)}")
    lines = textwrap.wrap(text, width, subsequent_indent=" " * INDENT, break_on_hyphens=False)
    lines += [" " * INDENT + visible(line) for line in to_paste(first, workload).splitlines()]
    return "\n".join([*lines, *command_lines(visible(first.command), width)])


def to_paste(finding: Finding, workload: Workload) -> str:
    """The lines that give the level that was measured to be faster, or that do what the finding
    states; empty if there are none."""
    if finding.faster:
        found = lines_to_paste(workload, finding.faster)
        # What is got by commands has them as the finding's own command.
        return found.lines if found and found.language == "python" else ""
    if finding.name == "no tensor cores" and finding.reason not in TF32_HELPS:
        return ""
    return SETTINGS.get(finding.name, "")


TF32_HELPS = ("ieee", "products in ieee")
SETTINGS = {
    "no tensor cores": 'torch.set_float32_matmul_precision("high")',
    "pageable copies": "loader = DataLoader(samples, ..., pin_memory=True)",
}


# ---------------------------------------------------------------- the texts


def _host(finding: Finding) -> str:
    share, most = (share_text(finding.figure(name)) for name in ("waiting", "at most"))
    return (
        f"At {finding.level}, the GPU waits for the host in {share} of a profiled step, and in at "
        f"most {most} of one without the profiler. "
        f"{_faster(finding, 'Launched as one graph')}"
    )


def _python(finding: Finding) -> str:
    share = share_text(finding.figure("outside"))
    return (
        f"{finding.level} spends {share} of a profiled step outside of operators: in Python, or "
        f"waiting. {_faster(finding, 'Without Python')}"
    )


def _short_kernels(finding: Finding) -> str:
    calls = count_text(finding.figure("kernels") or 0.0)
    mean = seconds_text(finding.figure("mean"))
    return (
        f"{finding.level} launches {calls} kernels in a step, of {mean} on average. "
        f"{_faster(finding, 'With fused kernels')}"
    )


def _lower_level(finding: Finding) -> str:
    faster, step = (seconds_text(finding.figure(name)) for name in ("faster step", "step"))
    return (
        f"{finding.faster} is the fastest level here: {faster}, "
        f"{share_text(finding.figure('ratio'))} of {finding.level}'s {step}."
    )


def _no_tensor_cores(finding: Finding) -> str:
    share = share_text(finding.figure("share of kernels"))
    seconds = seconds_text(finding.figure("seconds"))
    reason = REASONS.get(finding.reason, "").format(sizes=_listed(_sizes(finding)))
    return (
        f"At {finding.level}, products of matrices and convolutions without tensor cores take "
        f"{seconds}, {share} of the kernels' time{_in_layers(finding)}.{reason}"
    )


REASONS = {
    "ieee": " Precision ieee permits no TF32; tf32 does.",
    "products in ieee": " Precision default permits no TF32 in matrix products; tf32 does.",
    "sizes": " Their sizes {sizes} are not multiples that tensor cores handle well.",
}


def _sizes(finding: Finding) -> list[str]:
    return [f"{item.value:.0f}" for item in finding.figures if item.name == "size"]


def _layouts(finding: Finding) -> str:
    what = "the kernels' time" if finding.name == "layouts" else "a profiled step"
    seconds = seconds_text(finding.figure("seconds"))
    return (
        f"{finding.level} spends {seconds}, {share_text(finding.figure('share'))} of {what}, on "
        f"copies into other layouts. {_faster(finding, 'With channels last')}"
    )


def _few_blocks(finding: Finding) -> str:
    share = share_text(finding.figure("share of kernels"))
    unused = share_text(finding.figure("without a block"))
    batch = finding.figure("batch") or 0.0
    return (
        f"At {finding.level}, {share} of the kernels' time is in kernels with fewer blocks than "
        f"the GPU has multiprocessors, of which {unused} then have none"
        f"{_in_layers(finding)}. A larger batch than {batch:.0f} has more blocks."
    )


def _pageable_copies(finding: Finding) -> str:
    copies = count_text(finding.figure("copies") or 0.0)
    size, share = bytes_text(finding.figure("copied")), share_text(finding.figure("share"))
    return (
        f"At {finding.level}, a step has {copies} copies of {size} in all from pageable memory, "
        f"{share} of the profiled step, which is the most that pinned memory can save."
    )


def _activations(finding: Finding) -> str:
    return (
        f"{_part_of_peak(finding)} are activations, the largest part{_in_layers(finding)}. They "
        "grow with the batch."
    )


def _workspace(finding: Finding) -> str:
    return (
        f"{_part_of_peak(finding)} are workspace, which operators hold only while they run"
        f"{_in_layers(finding)}."
    )


def _part_of_peak(finding: Finding) -> str:
    size, peak = bytes_text(finding.figure("bytes")), bytes_text(finding.figure("peak"))
    share = share_text(finding.figure("share"))
    return f"At {finding.level}, {size} ({share}) of the {peak} at the memory's peak"


def _profiler(finding: Finding) -> str:
    profiled, time = seconds_text(finding.figure("with")), seconds_text(finding.figure("without"))
    return (
        f"Caution: at {finding.level}, a step takes {profiled} with the profiler and {time} "
        "without. The host's shares are larger than in a step without it."
    )


TEXTS: Mapping[str, Callable[[Finding], str]] = {
    "host": _host,
    "python": _python,
    "short kernels": _short_kernels,
    "no tensor cores": _no_tensor_cores,
    "layouts": _layouts,
    "layouts on the host": _layouts,
    "few blocks": _few_blocks,
    "pageable copies": _pageable_copies,
    "activations": _activations,
    "workspace": _workspace,
    CAUTION: _profiler,
    "lower level": _lower_level,
}


def _faster(finding: Finding, how: str) -> str:
    """Time of the faster level, or a note that it was not measured."""
    if not finding.faster:
        return f"{finding.reason} was not measured here."
    faster, step = (seconds_text(finding.figure(name)) for name in ("faster step", "step"))
    return (
        f"{how} ({finding.faster}) it takes {faster}, {share_text(finding.figure('ratio'))} of "
        f"{finding.level}'s {step}."
    )


def _in_layers(finding: Finding) -> str:
    return f", most in {_listed(finding.layers)}" if finding.layers else ""


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
