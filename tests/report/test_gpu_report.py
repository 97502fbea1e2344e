"""What is printed and written of a comparison on a GPU, and that a CPU's stays as it was."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from golow.measure.environment import environment
from golow.programs.comparison import store
from golow.records.comparison import (
    Block,
    Check,
    Comparison,
    Conditions,
    GpuState,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
    TensorError,
)
from golow.records.workload import Device, ModelSource, TensorType, Workload
from golow.report.comparison.advice import advice
from golow.report.comparison.table import render
from golow.report.units import joules_text, share_text

MACHINE = msgspec.structs.replace(
    environment(),
    cpu_model="Intel(R) Xeon(R) Platinum 8480+",
    gpu=("NVIDIA H200", "NVIDIA H200"),
    driver="580.159.04",
    versions={"torch": "2.11.0+cu130", "nvidia-cudnn-cu13": "9.19.0.56"},
)
LEVELS = (
    "eager",
    "eager:channels_last",
    "compile:freezing-cudagraphs",
    "compile:max-autotune",
    "cudagraph:channels_last",
    "torchscript",
    "libtorch",
    "cudnn",
)


def workload(device: Device = "cuda") -> Workload:
    return Workload(
        model="resnet50",
        source=ModelSource(kind="zoo", name="resnet50"),
        mode="infer",
        batch=8,
        inputs=(TensorType(shape=(8, 3, 64, 64), dtype="float32"),),
        device=device,
        precision="tf32",
    )


def quantity(name: str, unit: str, value: float) -> Quantity:
    return Quantity(name=name, unit=unit, value=value, low=0.99 * value, high=1.01 * value)


def state(*reasons: str, others: int = 0) -> GpuState:
    return GpuState(
        clock_mhz=1980,
        memory_clock_mhz=3201,
        temperature_c=61,
        power_w=700.0,
        utilization_percent=97,
        reasons=reasons,
        other_processes=others,
    )


def block(number: int, gpu: GpuState | None, throttled: bool = False) -> Block:
    return Block(
        round=number,
        position=0,
        host_ns=(50_000, 60_000),
        device_ns=(430_000, 440_000),
        gpu=gpu,
        throttled=throttled,
    )


def run(
    level: str,
    seconds: float = 0.00247,
    enqueue: float = 0.0001,
    gpu: GpuState | None = None,
    throttled: int = 0,
    **changes: Any,
) -> Run:
    """A level on a GPU with four blocks, of which so many were slowed down."""
    gpu = gpu or state("GpuIdle")
    worst = TensorError(
        name="0/output/0",
        elements=8000,
        scale=1.0,
        error=1e-7,
        eager_error=1e-7,
        limit=1e-6,
        passed=True,
    )
    made = Run(
        format_version=1,
        id=level,
        created="",
        level=level,
        workload=workload(),
        check=Check(verdict="match", worst=worst),
        environment=MACHINE,
        conditions=Conditions(
            threads=16,
            affinity=tuple(range(16)),
            precision="tf32",
            wait_policy="default",
            device="cuda",
        ),
        blocks=tuple(
            block(number, state("SwPowerCap") if number < throttled else gpu, number < throttled)
            for number in range(4)
        ),
        time=quantity("time", "s", seconds),
        ratio=Ratio(value=0.999, low=0.989, high=1.009, word="unclear"),
        memory=(
            quantity("resident", "B", 1023 * 2**20),
            quantity("device_used", "B", 1023 * 2**20),
            quantity("allocated_peak", "B", 1023 * 2**20),
        ),
        life=(quantity("ready", "s", 119.9), quantity("build", "s", 119.9)),
        build_cached=True,
        device=(
            quantity("enqueue", "s", enqueue),
            quantity("energy", "J", 0.413),
            quantity("power", "W", 431.0),
            quantity("utilization", "", 0.934),
            quantity("copied", "B", 393_216),
            quantity("copy_time", "s", 0.000_041),
        ),
    )
    return msgspec.structs.replace(made, **changes)


def comparison(*runs: Run, device: Device = "cuda") -> Comparison:
    race = RaceSummary(
        rounds=20,
        seed=0,
        stopped_because="interval",
        interval_target=0.02,
        seconds=30.0,
        contended_share=0.0,
    )
    return Comparison(
        format_version=1, id="c", created="", workload=workload(device), race=race, runs=runs
    )


def printed(*runs: Run, device: Device = "cuda") -> str:
    text = io.StringIO()
    render(comparison(*runs, device=device), Console(file=text, width=100))
    return text.getvalue()


# ---------------------------------------------------------------- the tables


@pytest.mark.parametrize("seconds", [9.99e-7, 1.234e-3, 0.9999, 999.0])
@pytest.mark.parametrize("rule", ["device_used", "device_added"])
def test_the_tables_fit_and_nothing_is_cut(seconds: float, rule: str) -> None:
    text = printed(
        *(
            run(
                level,
                seconds,
                seconds,
                conditions=msgspec.structs.replace(run(level).conditions, rounds_used="all"),
                memory=tuple(
                    msgspec.structs.replace(q, name=rule) if q.name == "device_used" else q
                    for q in run(level).memory
                ),
            )
            for level in LEVELS
        )
    )
    print(text)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    for whole in (":channels_last", "freezing-", "cudagraphs", "0.989-1.009", "(cached)"):
        assert whole in text
    assert ("1023 MiB+" in text) == (rule == "device_added")
    assert ("+: increase of the GPU memory in use" in text) == (rule == "device_added")
    assert "*: too few clean rounds; contended or throttled ones are included" in text


def test_the_title_names_card_precision_and_cache() -> None:
    title = printed(run("eager")).splitlines()[1]
    assert title == "on NVIDIA H200, precision tf32"
    conditions = msgspec.structs.replace(run("eager").conditions, cache="cold")
    assert printed(run("eager", conditions=conditions)).splitlines()[1] == f"{title}, L2 cold"


def test_the_conditions_name_the_software_that_a_gpu_runs() -> None:
    text = printed(run("eager", throttled=1))
    assert "driver 580.159.04, cuDNN 9.19.0.56, torch 2.11.0+cu130, Intel(R) Xeon(R)" in text
    assert "0% of the blocks contended, 25% throttled; intervals are 95%" in text


def test_the_second_table_says_what_the_gpu_spent() -> None:
    text = printed(run("eager"), run("cudnn", device=(), blocks=()))
    row = next(line for line in text.split("The GPU\n")[1].splitlines() if "431 W" in line)
    assert row.split("  ")[0].strip() == "eager"
    for figure in (
        "413 mJ",
        "431 W",
        "93%",
        "1980 MHz",
        "61 C",
        "0%",
        "384 KiB",
        "41.0 us",
        "1023 MiB",
    ):
        assert figure in row


def test_figures_that_no_level_has_make_no_column_and_none_no_table() -> None:
    text = printed(run("eager", device=(quantity("enqueue", "s", 0.0001),)))
    assert "energy" not in text.split("The GPU\n")[1]
    assert "clock" in text.split("The GPU\n")[1]
    bare = run("eager", device=(), blocks=(), memory=())
    assert "The GPU\n" not in printed(bare)


def test_a_cpus_report_knows_no_gpu() -> None:
    text = printed(run("eager"), device="cpu")
    for word in ("GPU", "H200", "enqueue", "throttled"):
        assert word not in text
    assert "artifact" in text and "break-" in text


def test_a_level_that_failed_has_a_row_of_dashes() -> None:
    failed = run(
        "libtorch",
        check=Check(verdict="failed", reason="out of memory: CUDA out of memory"),
        time=None,
        ratio=None,
        memory=(),
        life=(),
        device=(),
        blocks=(),
    )
    text = printed(run("eager"), failed)
    assert "libtorch: failed: out of memory: CUDA out of memory" in text
    rows = [line.split() for line in text.splitlines() if line.startswith(" libtorch ")]
    assert rows == [["libtorch", "failed", *"--------"], ["libtorch", *"---------"]]


# ---------------------------------------------------------------- the sentences


def test_advice_names_levels_that_the_host_holds_up() -> None:
    text = advice(comparison(run("eager", 0.00247, 0.0024), run("cudnn", 0.00043, 0.00001)))
    assert "eager is host-bound: it needs 2.40 ms to enqueue work that the GPU could" in text
    assert "cudnn is" not in text
    both = advice(comparison(run("eager", 0.0025, 0.0024), run("libtorch", 0.002, 0.0019)))
    assert "eager and libtorch are host-bound: eager needs 2.40 ms" in both
    assert "bound" not in advice(comparison(run("eager", 0.0343, 0.0024)))


def test_advice_says_that_the_card_was_slowed_down_and_why() -> None:
    text = advice(comparison(run("eager", throttled=2), run("cudnn")))
    assert "throttled the GPU in 25% of the blocks (SwPowerCap)" in text
    assert "Heat" not in advice(comparison(run("eager"), run("cudnn")))


@pytest.mark.parametrize(
    ("others", "words"),
    [(1, "Another program used the GPU as well"), (3, "Up to 3 other programs")],
)
def test_advice_says_that_others_used_the_card(others: int, words: str) -> None:
    assert words in advice(comparison(run("eager", gpu=state(others=others))))


def test_advice_on_a_cpu_knows_no_gpu() -> None:
    disturbed = run("eager", 0.002, 0.002, gpu=state(others=2), throttled=1)
    assert advice(comparison(disturbed, device="cpu")).startswith("No advice")
    assert "host" not in advice(comparison(disturbed, device="cpu"))


@pytest.mark.parametrize(
    ("joules", "text"), [(12.34, "12.3 J"), (0.0413, "41.3 mJ"), (8.2e-6, "8.20 uJ"), (None, "-")]
)
def test_joules(joules: float | None, text: str) -> None:
    assert joules_text(joules) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (0.001, "<1%"), (0.934, "93%"), (1.0, "100%"), (None, "-")]
)
def test_shares(share: float | None, text: str) -> None:
    assert share_text(share) == text


# ---------------------------------------------------------------- on disk


def test_a_gpus_record_comes_back_as_it_was(tmp_path: Path) -> None:
    made = comparison(run("eager", throttled=1), run("cudnn", gpu=state(others=2)))
    assert store.load(store.save(made, tmp_path)) == made


def test_rows_end_with_what_the_gpu_did(tmp_path: Path) -> None:
    late = run("cudnn", life=(*run("cudnn").life, quantity("artifact", "B", 12.0)), device=())
    made = comparison(run("eager", throttled=1), late)
    first, second = store.to_rows(made)
    assert (first["device"], first["precision"], first["cache"]) == ("cuda", "tf32", "warm")
    assert (first["clock_mhz"], first["temperature_c"], first["other_processes"]) == (1980, 61, 0)
    assert (first["energy"], first["power"], first["copied"]) == (0.413, 431.0, 393_216)
    assert second["energy"] is None
    with (store.save(made, tmp_path) / "runs.csv").open(newline="") as file:
        columns = next(csv.reader(file))
    assert tuple(columns[-len(store.DEVICE_COLUMNS) :]) == store.DEVICE_COLUMNS
    assert columns.index("artifact") < columns.index("device")


def test_a_cpus_rows_have_the_same_columns_empty() -> None:
    plain = msgspec.structs.replace(
        run("eager", device=(), blocks=()), workload=workload("cpu"), environment=environment()
    )
    (row,) = store.to_rows(comparison(plain, device="cpu"))
    assert row["device"] == "cpu"
    assert {row[name] for name in ("clock_mhz", "enqueue", "energy", "copied")} == {None}
