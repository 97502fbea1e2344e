"""Audits for tests, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from golow.programs.auditing.audit_record import (
    Audit,
    AuditedLevel,
    Combination,
    Finding,
    InForce,
    Price,
    Untried,
)
from golow.records.comparison import (
    Block,
    Check,
    Conditions,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
    VerdictName,
    Word,
)
from golow.records.workload import Device, ModelSource, TensorType, Workload
from support.records.profiles import machine

RACE = RaceSummary(
    rounds=20,
    seed=0,
    stopped_because="interval",
    interval_target=0.01,
    seconds=30.0,
    contended_share=0.0,
)


def workload(device: Device = "cpu", model: str = "resnet50") -> Workload:
    return Workload(
        model=model,
        source=ModelSource(kind="zoo", name=model),
        mode="infer",
        batch=8,
        inputs=(TensorType(shape=(8, 3, 64, 64), dtype="float32"),),
        device=device,
        threads=4000,
        parameters=25_557_032,
    )


def run(
    level: str,
    ratio: Ratio | None = None,
    *,
    seconds: float | None = 0.04,
    verdict: VerdictName = "match",
    reason: str = "",
    resident: float = 500 * 2**20,
    ready: float = 5.0,
    device: Device = "cpu",
) -> Run:
    time = None
    if seconds is not None:
        low, high = 0.99 * seconds, 1.01 * seconds
        time = Quantity(name="time", unit="s", value=seconds, low=low, high=high)
    return Run(
        format_version=1,
        id=level,
        created="",
        level=level,
        workload=workload(device),
        check=Check(verdict=verdict, reason=reason),
        environment=machine(),
        conditions=Conditions(threads=2, affinity=(0, 1), precision="default", wait_policy=""),
        blocks=(Block(round=0, position=0, host_ns=(1, 2, 3)),),
        time=time,
        ratio=ratio,
        memory=(
            Quantity(name="resident", unit="B", value=resident),
            Quantity(name="allocated_peak", unit="B", value=2**20),
        ),
        life=(Quantity(name="ready", unit="s", value=ready),),
    )


def ratio(value: float, word: Word) -> Ratio:
    return Ratio(value=value, low=0.99 * value, high=1.01 * value, word=word)


def price(
    choice: str = "allocator",
    alternative: str = "malloc_keep",
    value: float | None = 0.8,
    finding: Finding = "faster",
    *,
    level: str = "libtorch",
    confirmed: bool = True,
    verdict: VerdictName = "match",
    reason: str = "",
    resident: float = 500 * 2**20,
    ready: float = 5.0,
) -> Price:
    """A price with this finding; value: its ratio, None for an alternative without a time."""
    first: Word = "faster" if finding == "refuted" else finding
    again: Word = "unclear" if finding == "refuted" else finding
    both = finding in ("faster", "slower", "refuted") and confirmed
    return Price(
        choice=choice,
        alternative=alternative,
        now="glibc, returns memory",
        value="glibc, keeps memory",
        run=run(
            f"{level}+{alternative}",
            None if value is None else ratio(0.98 * value, first),
            seconds=None if value is None else 0.04 * value,
            verdict=verdict,
            reason=reason,
            resident=resident,
            ready=ready,
        ),
        evidence=None if value is None else 0.01,
        confirmed=ratio(value, again) if both and value is not None else None,
        finding=finding if value is not None else "unclear",
    )


def level(
    name: str = "libtorch",
    prices: Sequence[Price] = (),
    in_force: Mapping[str, str] | None = None,
    *,
    untried: Sequence[Untried] = (),
    best: Combination | None = None,
) -> AuditedLevel:
    values = in_force if in_force is not None else {"allocator": "glibc, returns memory"}
    return AuditedLevel(
        level=name,
        run=run(name, ratio(0.9, "faster")),
        in_force=tuple(InForce(choice=c, value=v) for c, v in values.items()),
        prices=tuple(prices),
        untried=tuple(untried),
        races=(RACE, RACE),
        best=best,
    )


def audit(levels: Sequence[AuditedLevel], *, device: Device = "cpu", **fields: object) -> Audit:
    made = Audit(
        id="20261124-000000-resnet50-infer-audit",
        created="2026-11-24T00:00:00+00:00",
        workload=workload(device),
        levels=tuple(levels),
    )
    return msgspec.structs.replace(made, **fields)


def combination(name: str = "libtorch", value: float = 0.7, word: Word = "faster") -> Combination:
    return Combination(
        alternatives=("malloc_keep", "fused_sgd"),
        level=f"{name}+fused_sgd+malloc_keep",
        run=run(f"{name}+fused_sgd+malloc_keep", ratio(value, word)),
        steps=3,
    )


EVERYTHING = audit(
    [
        level(
            "eager",
            [
                price("optimizer_kernels", "fused_sgd", 0.95, "faster", level="eager"),
                price("allocator", "malloc_keep", 1.002, "same", level="eager"),
                price("memory_format", "channels_last", 1.3, "slower", level="eager"),
                price("threads", "one_thread", 0.97, "refuted", level="eager"),
                price("binding", "bound", 1.02, "unclear", level="eager"),
            ],
            {"allocator": "glibc, returns memory", "governor": "performance"},
        ),
        level(
            "libtorch",
            [
                price(resident=900 * 2**20, ready=7.0),
                price("denormals", "flushed", None, verdict="differs", reason="0/output/0 is off"),
                price("threads", "many", None, verdict="failed", reason="the worker was killed"),
                price("jemalloc", "jemalloc", None, verdict="unavailable", reason="not installed"),
                price("binding", "bound", None),
            ],
            {"allocator": "glibc, keeps memory", "governor": "performance"},
            untried=[
                Untried(choice="allocator", alternative="mimalloc", reason="no libmimalloc; apt"),
                Untried(choice="allocator", alternative="tcmalloc", reason="no libtcmalloc; apt"),
            ],
            best=combination(),
        ),
    ],
    notes=("a note",),
)
"""All findings and verdicts, a combination, what was not tried, and choices that differ."""

LONG = "x" * 300
HOSTILE = audit(
    [
        level(
            "compile:freezing-cudagraphs",
            [
                price("=1+1" + LONG, "[bold]\x1b[31m" + LONG, 0.5, "faster", level="\u202e$x$"),
                price("a\nb", "", 1e-9, "slower"),
                price("c", "d", 1e9, "slower"),
            ],
            {"[red]x": "\x1b[0m" + LONG, "": ""},
            untried=[Untried(choice="=x", alternative="\x1b[2J", reason="r " * 900)],
        ),
        level("a" * 200, [], {"[red]x": "other"}),
    ],
)

AUDITS = {
    "everything": EVERYTHING,
    "hostile names": HOSTILE,
    "no level": audit([]),
    "no prices": audit([level("eager", [], {})]),
    "interrupted": audit([level("eager", [price(confirmed=False)])], interrupted=True),
    "a GPU's": audit([level("cudnn", [price(level="cudnn")])], device="cuda"),
    "many": audit(
        [
            level(
                name,
                [price(f"choice{n}", f"one{n}", 0.7 + 0.01 * n, "same") for n in range(60)],
            )
            for name in ("eager", "compile", "libtorch")
        ]
    ),
    "a failed level": audit(
        [
            msgspec.structs.replace(
                level("compile", [price(value=None)]),
                run=run("compile", seconds=None, verdict="failed", reason="it died"),
            )
        ]
    ),
    "a combination that was not confirmed": audit(
        [level("libtorch", [price()], best=combination(value=1.2, word="unclear"))]
    ),
}
