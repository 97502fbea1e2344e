"""Words and numbers that the table, figure, page and rows of a generation share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from golow.programs.generation.generation_record import Generation, TextCase, TextRun
from golow.records.quantization import COMPENSATED
from golow.records.text import TextWorkload
from golow.report.units import ratio_text, seconds_text

MOSTLY = 0.5  # of the tokens


def title(found: Generation) -> str:
    """The model, the sizes of its texts, and how its tokens are chosen."""
    work = found.cases[0].workload
    batches = ", ".join(str(case.workload.batch) for case in found.cases)
    rules = ", ".join(sorted({layer.rule for layer in work.source.quantized}))
    parts = [
        f"{work.model}, {work.tokens} tokens {_prompts(work)}",
        f"batch {batches}",
        rules or ("float32" if work.precision == "default" else work.precision),
    ]
    sampling = work.sampling
    if not sampling.is_greedy:
        parts.append(f"temperature {sampling.temperature:g}")
        parts += [f"top-k {sampling.top_k}"] if sampling.top_k else []
        parts += [f"top-p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    return ", ".join(parts)


def _prompts(work: TextWorkload) -> str:
    if work.encoder:
        source = "features" if work.encoder == "features" else f"a source of {work.prompt}"
        return f"from {source}"
    shortest = min(work.prompts)
    return f"after {work.prompt if shortest == work.prompt else f'{shortest} to {work.prompt}'}"


def conditions(found: Generation) -> str:
    """Where it was measured, on what, and until when."""
    machine, work = found.environment, found.cases[0].workload
    threads = f"{work.threads} thread{'s' if work.threads != 1 else ''}"
    where = ", ".join(dict.fromkeys(machine.gpu)) if work.device == "cuda" else machine.cpu_model
    lines = [f"{where or 'a GPU'}, {threads}, torch {machine.versions.get('torch', '?')}"]
    lines.append(f"{work.parameters:,} parameters ({work.initialisation}); intervals are 95%")
    if work.quantized_parameters:
        lines.append(_quantized(work))
    if found.interrupted:
        lines.append("interrupted: partial results")
    return "\n".join(lines)


def _quantized(work: TextWorkload) -> str:
    layers = len(work.source.quantized)
    text = f"{work.quantized_parameters:,} of them quantised, in {layers} layers"
    if work.calibration is not None:
        samples, data = work.calibration.samples, work.calibration.data
        text += f"; rounding errors compensated with {samples:,} samples ({data})"
    return text


def tokens_per_second(case: TextCase, run: TextRun) -> float | None:
    """Tokens per second of all texts of the batch together."""
    return None if run.token is None else case.workload.batch / run.token.value


def roof_share(found: Generation, case: TextCase, run: TextRun) -> float | None:
    """Time of a plain read of the weights and the caches over that of a token."""
    if run.token is None or found.read_rate is None:
        return None
    return case.roof(found.read_rate.value) / run.token.value


def curve(case: TextCase, run: TextRun) -> list[tuple[int, float]]:
    """Tokens before a token, and the seconds that it takes: the median over the rounds."""
    times = zip(*(block.host_ns[1:] for block in run.blocks), strict=True)
    begin = case.workload.prompt + 1
    return [(begin + place, median(each) / 1e9) for place, each in enumerate(times)]


def remarks(found: Generation) -> Iterator[str]:
    """Sentences about the levels that a reader must know."""
    work = found.cases[0].workload
    if work.precision in COMPENSATED and work.calibration is None:
        yield (
            f"{work.precision} rounded every weight to the nearest number; with --calibrate FILE, "
            "rounding errors compensate one another, and less of the network is lost"
        )
    several = len(found.cases) > 1
    for case in found.cases:
        prefix = f"batch {case.workload.batch}, " if several else ""
        for run in case.runs:
            yield from (f"{prefix}{run.level}: {said}" for said in _of_run(case, run))
        if _repeats(case):
            yield (
                f"{prefix}most tokens repeat the previous one, so a skipped step would be hard "
                "to detect"
            )
    yield from found.notes


def _of_run(case: TextCase, run: TextRun) -> Iterator[str]:
    if run.reason:
        yield f"{run.verdict}: {run.reason}"
    if run.departure is not None:
        at = run.departure
        text = f" of text {at.text}" if case.workload.batch > 1 else ""
        if at.explained:
            yield (
                f"its text departs from that of eager:static at token {at.token}{text}, where "
                f"the best logits are {2 * at.error:.2g} apart; rounding explains up to "
                f"{2 * case.error_limit:.2g}"
            )
        else:
            yield (
                f"its text departs from that of eager:static at token {at.token}{text}; it is wrong"
            )
    if run.token is not None and all(block.contended for block in run.blocks):
        yield "other programs used its cores in every round"
    if run.ratio is not None and run.ratio.word in ("faster", "slower"):
        first = case.runs[0].level
        yield f"{ratio_text(run.ratio.value)} of {first}'s time per token: {run.ratio.word}"


def _repeats(case: TextCase) -> bool:
    """True if most tokens of the free texts equal the one before."""
    texts = [text for run in case.runs[:1] for text in run.texts]
    pairs = [pair for text in texts for pair in pairwise(text)]
    return bool(pairs) and sum(a == b for a, b in pairs) > MOSTLY * len(pairs)


def written(case: TextCase) -> list[tuple[str, str]]:
    """Return the texts after the user's prompt, each with the levels that wrote it."""
    by_text: dict[tuple[int, str], list[str]] = {}
    for run in case.runs:
        if run.written and run.verdict == "match":
            for number, text in enumerate((run.written, *run.further)):
                by_text.setdefault((number, text), []).append(run.level)
    ordered = sorted(by_text.items(), key=lambda item: item[0][0])
    return [(", ".join(levels), text) for (_, text), levels in ordered]


def proof(found: Generation) -> str:
    """The proof in one sentence."""
    tokens = sum(run.replayed for case in found.cases for run in case.runs)
    by = " by the quantised network" if found.cases[0].workload.source.quantized else ""
    return (
        f"every generated token was replayed in float64{by} ({tokens:,} tokens); "
        "no level knew the timed prompts beforehand"
    )


def start_text(run: TextRun) -> str:
    """From the start of the process until it can begin a text."""
    return seconds_text(run.figure("start"))
