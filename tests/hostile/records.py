"""Hostile records: comparisons, trainings and studies that golow wrote and something changed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from golow.levels.ladder import BASELINE
from golow.programs.auditing import store as audit_store
from golow.programs.comparison import store
from golow.programs.generation import store as generation_store
from golow.programs.life import store as life_store
from golow.programs.load import store as load_store
from golow.programs.profiling import store as profile_store
from golow.programs.quantization import store as quantization_store
from golow.programs.training import store as training_store
from golow.programs.training.training_record import CurveVerdict
from hostile.case import Case
from hostile.damage import (
    PLACES,
    damaged_bytes,
    damaged_fields,
    nasty_value,
)
from support.records import (
    audits,
    drawn_studies,
    drawn_trainings,
    generations,
    lives,
    load_tests,
    profiles,
    quantizations,
    studies,
)

Tree = dict[str, bytes]

# A changed record may still be one.
EITHER = (0, 2)


def comparison(random: Random, folder: Path) -> Case:
    """``golow show`` of a comparison, damaged."""
    write(comparison_tree(random.random() < 0.5), folder / "it")
    title, powerless = damage_one(folder / "it", random)
    layers = random.choice(([], ["--by-layer"]))
    return Case(
        title=f"show comparison: {title}",
        folder=str(folder),
        arguments=("show", random.choice(("it", "it", "it/comparison.json")), *layers),
        statuses=EITHER,
        without_power=powerless,
    )


def two_comparisons(random: Random, folder: Path) -> Case:
    """Two at once, one of them damaged."""
    for name in ("it", "other"):
        write(comparison_tree(False), folder / name)
    title, powerless = damage_one(folder / "it", random)
    more = random.choice(([], ["--anyway"]))
    return Case(
        title=f"show two comparisons: {title}",
        folder=str(folder),
        arguments=("show", "other", "it", *more),
        statuses=EITHER,
        without_power=powerless,
    )


def training(random: Random, folder: Path) -> Case:
    """``golow show`` of a training, damaged."""
    return shown(training_tree(), "training", random, folder, places=("it",))


def resumed_training(random: Random, folder: Path) -> Case:
    """``golow train --resume``: whatever the damage, the digits are not those of the plan."""
    write(training_tree(), folder / "it")
    title, powerless = damage_one(folder / "it", random, "plan.json")
    return Case(
        title=f"resume training: {title}",
        folder=str(folder),
        arguments=("train", "--resume", "it"),
        without_power=powerless,
    )


def profile(random: Random, folder: Path) -> Case:
    """``golow show`` and ``golow profile --diff`` of profiles, one of them damaged."""
    for name in ("it", "other"):
        write(profile_tree(), folder / name)
    title, powerless = damage_one(folder / "it", random)
    divided = ("--by", random.choice(("operator", "layer", "kernel")))
    command = random.choice(
        (("show", "it"), ("profile", "--diff", "it", "other"), ("profile", "--diff", "other", "it"))
    )
    return Case(
        title=f"{' '.join(command)}: {title}",
        folder=str(folder),
        arguments=(*command, *divided),
        statuses=EITHER,
        without_power=powerless,
    )


def life_cycle(random: Random, folder: Path) -> Case:
    """``golow show`` of a comparison whose life cycle is damaged."""
    write(life_tree(), folder / "it")
    title, powerless = damage_one(folder / "it", random, "life.json")
    return Case(
        title=f"show life: {title}",
        folder=str(folder),
        arguments=("show", "it"),
        statuses=EITHER,
        without_power=powerless,
    )


def load_test(random: Random, folder: Path) -> Case:
    """``golow show`` of a load test, damaged."""
    write(load_tree(), folder / "it")
    title, powerless = damage_one(folder / "it", random)
    return Case(
        title=f"show load test: {title}",
        folder=str(folder),
        arguments=("show", random.choice(("it", "it", "it/load.json"))),
        statuses=EITHER,
        without_power=powerless,
    )


def audit(random: Random, folder: Path) -> Case:
    """``golow show`` of an audit, damaged."""
    return shown(audit_tree(), "audit", random, folder, places=("it", "it", "it/audit.json"))


def generation(random: Random, folder: Path) -> Case:
    """``golow show`` of a generation, damaged."""
    places = ("it", "it/generation.json")
    return shown(generation_tree(), "generation", random, folder, places)


def shown(tree: Tree, name: str, random: Random, folder: Path, places: tuple[str, ...]) -> Case:
    """``golow show`` of a damaged record, by one of the places."""
    write(tree, folder / "it")
    title, powerless = damage_one(folder / "it", random)
    return Case(
        title=f"show {name}: {title}",
        folder=str(folder),
        arguments=("show", random.choice(places)),
        statuses=EITHER,
        without_power=powerless,
    )


def study_folder(random: Random, folder: Path) -> Case:
    """What shows or continues a study, whose folder is damaged."""
    write(study_tree(), folder / "study")
    title, powerless = damage_one(folder / "study", random)
    command = random.choice(
        (
            ("show", "study"),
            ("show", "study"),
            ("status", "study"),
            ("list", "--out", "."),
            ("export", "study", "--to", "table.csv"),
            ("export", "study", "--format", "json", "--to", "table.json"),
            ("figures", "study", "--out", "figures", "--formats", "html"),
            ("resume", "study", "--budget", "0"),
        )
    )
    return Case(
        title=f"study {' '.join(command)}: {title}",
        folder=str(folder),
        arguments=("study", *command),
        statuses=(0, 1, 2) if command[0] == "resume" else EITHER,
        without_power=powerless,
    )


def study_file(random: Random, folder: Path) -> Case:
    """``golow study run`` of a file. No cell is begun: those are comparisons."""
    file = folder / "study.toml"
    file.write_text(random.choice((hostile_toml, hostile_toml, damaged_toml))(random))
    title = file.read_text(errors="replace")[:300]
    powerless = False
    if random.random() < 0.2:
        place = random.choice(PLACES[:-2])
        place(file)
        title, powerless = place.__name__, "permission" in place.__name__
    elif random.random() < 0.3:
        title, data = damaged_bytes(file.read_bytes(), random)
        file.write_bytes(data)
    return Case(
        title=f"study file: {title}",
        folder=str(folder),
        arguments=("study", "run", "study.toml", "--budget", "0"),
        statuses=(1, 2),
        without_power=powerless,
    )


# ---------------------------------------------------------------- what is damaged


def damage_one(folder: Path, random: Random, name: str = "") -> tuple[str, bool]:
    """Damage a file of the folder; in words how, and whether that takes a user without power."""
    files = sorted(path for path in folder.rglob(name or "*") if path.is_file())
    files = [path for path in files if path.suffix != ".csv"]
    file = random.choice(files)
    where = file.relative_to(folder)
    kind = random.random()
    if kind < 0.15:
        place = random.choice(PLACES)
        place(file)
        return f"{place.__name__} {where}", "permission" in place.__name__
    if kind < 0.35 or file.suffix != ".json":
        title, data = damaged_bytes(file.read_bytes(), random)
    else:
        title, data = damaged_fields(file.read_bytes(), random)
    file.write_bytes(data)
    return f"{title} in {where}", False


def damaged_toml(random: Random) -> str:
    """A study with one value changed."""
    values = {
        "name": "tiny",
        "model": ["mlp"],
        "levels": ["eager"],
        "batch": [1],
        "resolution": [8],
        "mode": ["infer"],
        "device": "cpu",
        "precision": ["default"],
        "threads": [1],
        "channels": 1,
        "classes": 10,
    }
    limits = {"interval": 0.02, "seconds": 1.0, "cell_seconds": 60.0, "memory": "80%"}
    table = random.choice((values, values, limits))
    name = random.choice(list(table))
    value = nasty_value(random)
    table[name] = random.choice((value, [value], [table[name], value]))
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join([*lines, "[limits]", *(f"{k} = {_toml(v)}" for k, v in limits.items())])


def hostile_toml(random: Random) -> str:
    """Studies that nobody would write."""
    head = 'name = "tiny"\nmodel = "mlp"\nlevels = "eager"\n'
    return random.choice(
        (
            head + "batch = 1\nbatch = 2",
            head + "batch = nan",
            head + "batch = inf",
            head + "batch = 1979-05-27",
            head + "batch = [" + "1," * 200_000 + "]",
            head + "batch = [" + ",".join(map(str, range(1, 20_000))) + "]\nresolution = "
            "[" + ",".join(map(str, range(1, 20_000))) + "]",
            head + f"batch = {10**30}",
            head + f"batch = {'9' * 6000}",
            head + "batch = 1\n[limits]\nseconds = 1e400",
            head + "batch = 1\n[limits]\nseconds = nan\ninterval = nan",
            head + f'batch = 1\n[limits]\nmemory = "{"9" * 400}%"',
            head + f'batch = 1\n[limits]\nmemory = "{"9" * 400} GiB"',
            head + "batch = 1\n[limits]\nlimits.limits = 1",
            head + "batch = 1\n[[limits]]",
            head + "batch = 1\n[batch]",
            head + "batch = 1\n" + ".".join("a" * 5000) + " = 1",
            head + "batch = " + "[" * 5000 + "]" * 5000,
            head + 'batch = 1\nthreads = ["doubling"]',
            head + f"batch = 1\nthreads = {2**62}",
            head + f"batch = 1\nchannels = {2**62}\nclasses = {2**62}",
            'name = "tiny"\nmodel = ["./folder.py:Net", "mlp:", ":mlp", ".pt2", ".py:"]\n'
            'levels = "eager"\nbatch = 1',
            'name = "' + "a" * 300 + '"\nmodel = "mlp"\nlevels = "eager"\nbatch = 1',
            'name = "../up"\nmodel = "mlp"\nlevels = "eager"\nbatch = 1',
            'name = "a"\nmodel = "\\u0000.py:Net"\nlevels = "eager"\nbatch = 1',
            "",
            "\0",
            "[limits]",
        )
    )


def _toml(value: object) -> str:
    """JSON's spelling, which is TOML's for most values; what is not is hostile too."""
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------- what is whole


@cache
def comparison_tree(on_gpu: bool) -> Tree:
    """A comparison of several levels."""
    if not on_gpu:
        return _tree(lambda folder: store.save(studies.comparison(), folder))
    cell = drawn_studies.cell(levels=("eager", "cudnn", "compile:freezing", "libtorch"))
    runs = [
        drawn_studies.run(cell, "eager", 0.01, memory=2.0**30),
        drawn_studies.run(cell, "cudnn", 0.005, 0.5, memory=2.0**29),
        drawn_studies.run(cell, "compile:freezing", None, verdict="differs", reason="it is off"),
        drawn_studies.run(cell, "libtorch", None, verdict="failed", reason="it died: signal 11"),
    ]
    found = drawn_studies.measured(cell, runs).comparison
    assert found is not None
    return _tree(lambda folder: store.save(found, folder))


@cache
def profile_tree() -> Tree:
    """A profile of a GPU in two precisions."""

    def save(folder: Path) -> Path:
        profile_store.save(profiles.gpu_profiles(), folder)
        return folder

    return _tree(save)


@cache
def life_tree() -> Tree:
    """A comparison with a life cycle."""

    def save(parent: Path) -> Path:
        folder = store.save(studies.comparison(), parent)
        life_store.save(lives.whole(), folder)
        return folder

    return _tree(save)


@cache
def audit_tree() -> Tree:
    """An audit with all there may be in one."""
    return _tree(lambda parent: audit_store.save(audits.EVERYTHING, parent))


@cache
def generation_tree() -> Tree:
    """A generation with all there may be in one."""
    return _tree(lambda parent: generation_store.save(generations.EVERYTHING, parent))


@cache
def load_tree() -> Tree:
    """A load test with all there may be in one."""
    return _tree(lambda parent: load_store.save(load_tests.everything(), parent))


@cache
def quantization_tree() -> Tree:
    """A quantised network with all there may be in its record."""
    return _tree(lambda parent: quantization_store.save(quantizations.EVERYTHING, parent))


@cache
def training_tree() -> Tree:
    """A training of two levels and seeds, on digits that have other checksums."""

    def save(parent: Path) -> Path:
        epochs = [drawn_trainings.epoch(1), drawn_trainings.epoch(2)]
        runs = [
            drawn_trainings.run(level, epochs, seed)
            for level in (BASELINE, "torchscript")
            for seed in (0, 1)
        ]
        verdicts = [
            CurveVerdict(level="torchscript", initialisation="default", word="same", reason="all")
        ]
        whole = drawn_trainings.training(runs, "digits", verdicts)
        _plan, folder = training_store.create(whole.plan, parent)
        for run in runs:
            place = training_store.run_folder(folder, run.level, run.initialisation, run.seed)
            place.write(run)
            for epoch in run.epochs:
                place.add(epoch)
        findings = training_store.Findings(verdicts=tuple(verdicts))
        training_store.write_findings(folder, findings)
        plan_file = folder / "plan.json"
        data = json.loads(plan_file.read_text())
        plan_file.write_text(json.dumps(data | {"device": "cpu", "model": "mlp"}))
        return folder

    return _tree(save)


@cache
def study_tree() -> Tree:
    """A study of a few cells: done, failed and skipped."""
    cells = drawn_studies.levental_like((8, 32), (8, 64), ("infer",), ("eager", "torchscript"))

    def save(parent: Path) -> Path:
        folder = drawn_studies.write(parent / "study", cells)
        file = folder / "study.toml"
        file.write_text(file.read_text().replace("cuda", "cpu"))
        for record in folder.rglob("cell.json"):
            record.write_text(record.read_text().replace('"cuda"', '"cpu"'))
        return folder

    return _tree(save)


def _tree(save: Callable[[Path], Path]) -> Tree:
    with tempfile.TemporaryDirectory() as parent:
        folder = save(Path(parent))
        return {
            str(file.relative_to(folder)): file.read_bytes()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }


def write(tree: Tree, folder: Path) -> None:
    """The files of the tree, under the folder."""
    for name, data in tree.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
