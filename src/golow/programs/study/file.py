"""Study files: short TOML -> `Study`, with errors that name the line and state what is allowed.

name = "mystudy"
model = "resnet50"              # every axis is one value or a list
mode = ["infer", "train"]
levels = ["eager", "torchscript", "vendor"]
batch = [8, 16, 32]
resolution = [32, 64]
[limits]
interval = 0.02
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections import Counter
from dataclasses import replace
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, NoReturn, get_args

import msgspec

from golow import models
from golow.compiled.callable_levels import LEVELS, is_callable
from golow.levels import ladder
from golow.levels.generation import table
from golow.programs.load.settings import LoadSettings, plan_of
from golow.programs.study.memory import limit_bytes
from golow.programs.study.study_record import (
    Study,
    StudyGeneration,
    StudyLimits,
    StudyLoad,
    generations_of,
)
from golow.records.errors import GolowError
from golow.records.quantization import QuantizationRule
from golow.records.workload import Device, Precision
from golow.storage.files import is_file, read_text
from golow.workload.generation.request import PRECISIONS
from golow.workload.request import sample_shape

AXES = ("model", "mode", "levels", "batch", "resolution", "precision", "threads", "ranks", "gpus")
AXES_OF_TABLES = {"load": ("rate", "contexts"), "generation": ("prompt", "tokens")}

RULES: tuple[str, ...] = get_args(QuantizationRule)
MOST_CELLS = 100_000
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")

# The allowed values of each key, as errors show them.
ALLOWED = {
    "name": "up to 100 letters from a to z, digits and -",
    "model": "names that `golow models` lists, hf:NAME, timm:NAME, "
    "file.py:Name, package.module:name or file.pt2",
    "mode": "infer, train, or both",
    "levels": "names that `golow levels` lists",
    "device": "cpu or cuda",
    "batch": "whole numbers from 1",
    "resolution": "whole numbers from 1: sides of the square images",
    "input": 'the shape of one sample, such as "3x224x224" or "16", instead of a resolution; '
    "for models of your own",
    "precision": "default, ieee, tf32, bf16, fp16; on a CPU default, ieee, and in inference "
    f"{', '.join(RULES)}, which quantise the network first; with [generation] those of "
    "golow generate",
    "calibrate": "a data set that `golow data list` names, or inputs, for precisions that quantise",
    "threads": 'whole numbers from 1, or "doubling" for 1, 2, 4, ... and all hardware threads',
    "ranks": "whole numbers from 1: processes that train together on a CPU",
    "gpus": "whole numbers from 1: GPUs that train together",
    "channels": "a whole number from 1, for models of the zoo",
    "classes": "a whole number from 1, for models of the zoo",
    "pretrained": "true or false, for hf: and timm: models: published weights, or random ones",
    "phase": "prefill or decode, for causal hf: models",
    "limits": "a table of limits: " + ", ".join(StudyLimits.__struct_fields__),
    "load": "a table for cells under load: " + ", ".join(StudyLoad.__struct_fields__),
    "load.rate": "requests per second, more than 0",
    "load.contexts": "whole numbers from 1: batches that run at the same time",
    "load.latency": "the latency limit in seconds, such as 0.02",
    "load.percentile": "the percentage of requests that must meet the latency limit, from 50",
    "load.delay": "seconds that a request waits for others, at most",
    "load.seconds": "seconds of each run, more than 0",
    "load.repeats": "a whole number from 1: rounds of runs",
    "generation": "a table for cells of text: " + ", ".join(StudyGeneration.__struct_fields__),
    "generation.prompt": "whole numbers from 1: tokens of a prompt",
    "generation.tokens": "whole numbers from 2: generated tokens",
    "limits.interval": "a relative width between 0 and 1, such as 0.02",
    "limits.seconds": "seconds of racing per cell, more than 0",
    "limits.cell_seconds": "seconds, more than 0",
    "limits.memory": 'a share of the device\'s memory such as "80%", or a size such as "40 GiB"',
}


def built_in() -> dict[str, Path]:
    """The studies that come with golow, by name."""
    folder = Path(str(resources.files("golow"))) / "programs" / "study" / "built_in"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def read_study(file: Path, device: Device | None = None) -> Study:
    """Read the study in the file. device: replaces the device that the file names.

    Raises `GolowError` with the line and the values allowed there.
    """
    text = read_text(file)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # too many digits, too many brackets
        raise GolowError(
            f"{file} is not TOML: {error}", "docs/use/studies.md shows a whole study file."
        ) from error
    if device is not None:
        data["device"] = device
    return _Reader(file, text).study(data)


class _Reader:
    """Turns one file into a `Study`; finds the line of each key for errors."""

    def __init__(self, file: Path, text: str) -> None:
        self._file, self._lines = file, text.splitlines()

    def study(self, data: dict[str, Any]) -> Study:
        self._require_known(data)
        for axis in AXES:
            if axis in data and not isinstance(data[axis], list) and data[axis] != "doubling":
                data[axis] = [data[axis]]
        for name, axes in AXES_OF_TABLES.items():
            found = data.get(name)
            for axis in axes:
                if isinstance(found, dict) and axis in found and not isinstance(found[axis], list):
                    found[axis] = [found[axis]]
        for required in ("name", "model", "levels", "batch"):
            if not data.get(required):
                self._fail(required, f"{required} is missing" + self._hint_of_empty(data, required))
        try:
            study = msgspec.convert(data, Study)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$.")
            at = re.sub(r"\[.*", "", path.rstrip("`"))
            self._fail(at, f"{at or 'the file'}: {message[0].lower()}{message[1:]}")
        self._require_sense(study)
        return self._with_found_files(study)

    def _require_known(self, data: dict[str, Any]) -> None:
        tables = {name: data.get(name) for name in ("limits", *AXES_OF_TABLES)}
        within = [
            f"{table}.{name}"
            for table, found in tables.items()
            if isinstance(found, dict)
            for name in found
        ]
        names = [*data, *within]
        for name in names:
            if name not in ALLOWED:
                near = difflib.get_close_matches(name, ALLOWED, n=1)
                meant = f"did you mean {near[0]}? " if near else ""
                known = ", ".join(key for key in ALLOWED if "." not in key)
                self._fail(name, f"a study has no key {name}", f"{meant}the keys are {known}.")

    @staticmethod
    def _hint_of_empty(data: dict[str, Any], name: str) -> str:
        return ": the list is empty" if name in data else ""

    def _require_sense(self, study: Study) -> None:
        """Check what the types do not."""
        if not NAME.fullmatch(study.name):
            self._fail("name", f"a study cannot be called {study.name!r}")
        for axis in AXES:
            values = getattr(study, axis)
            twice = [value for value, times in Counter(values).items() if times > 1]
            if twice and values != "doubling":
                self._fail(axis, f"{axis} has {twice[0]!r} twice")
        count = math.prod(len(getattr(study, axis)) or 1 for axis in AXES if axis != "levels")
        count *= len(generations_of(study))
        if count > MOST_CELLS:
            self._fail("batch", f"the study has {count:,} cells; the limit is {MOST_CELLS:,}")
        for axis in ("batch", "resolution", "threads", "ranks", "gpus"):
            for value in getattr(study, axis):
                if not isinstance(value, str) and value < 1:
                    self._fail(axis, f"{axis}: {value} is less than 1")
        self._require_ranks(study)
        self._require_models(study)
        self._require_input(study)
        self._require_limits(study.limits)
        if study.generation is not None:
            self._require_generation(study, study.generation)
            return
        self._require_precisions(study)
        self._require_levels(study)
        if study.load is not None:
            self._require_load(study, study.load)

    def _require_ranks(self, study: Study) -> None:
        for axis, values in (("ranks", study.ranks), ("gpus", study.gpus)):
            if not values:
                self._fail(axis, f"{axis}: the list is empty")
            if max(values) == 1:
                continue
            if axis != study.axis_of_ranks:
                hint = f"{study.axis_of_ranks} = {list(values)} is the axis of that device."
                self._fail(axis, f'{axis} are not for the device "{study.device}"', hint)
            if "train" not in study.mode:
                hint = f'mode = "train"; leave out {axis} for inference.'
                self._fail(axis, f"{axis} are for training: they exchange gradients", hint)

    def _require_precisions(self, study: Study) -> None:
        known = {*get_args(Precision), *RULES}
        for name in study.precision:
            if name not in known:
                self._fail("precision", f"the precision {name} is for [generation]")
        rules = {*study.precision} & {*RULES}
        if study.device == "cpu" and (bad := {*study.precision} - {"default", "ieee"} - rules):
            self._fail("precision", f"the precision {min(bad)} is for a GPU, not for a CPU")
        if study.device != "cpu" and rules:
            self._fail(
                "precision", f"the precision {min(rules)} is for a CPU: golow quantises there"
            )
        if rules and "train" in study.mode:
            self._fail("mode", f"a network of the precision {min(rules)} is not trained")

    def _require_models(self, study: Study) -> None:
        for name in study.model:
            if name in models.ZOO and not models.ZOO[name].takes_images:
                if study.resolution:
                    self._fail("resolution", f"{name} takes no images, so it has no resolution")
            elif name in models.ZOO:
                faults = [models.ZOO[name].resolution_fault(side) for side in study.resolution]
                if any(faults):
                    self._fail("resolution", next(filter(None, faults)))
            elif ":" not in name and not name.endswith(".pt2"):
                near = models.nearest(name)
                meant = f"did you mean {' or '.join(near)}? " if near else ""
                self._fail("model", f"there is no model {name!r}", meant + ALLOWED["model"])

    def _require_input(self, study: Study) -> None:
        if not study.input:
            return
        if study.resolution:
            self._fail("input", "input and resolution both give the shape", "use only one of them.")
        if known := [name for name in study.model if name in models.ZOO or name.startswith("hf:")]:
            self._fail("input", f"input is not for {known[0]}, whose inputs golow knows")
        try:
            smallest = min(sample_shape(study.input))
        except GolowError as error:
            self._fail("input", error.message)
        if smallest < 1:
            self._fail("input", f"the input {study.input} is empty")

    def _require_levels(self, study: Study) -> None:
        for name in study.levels:
            everywhere = product(study.mode, study.rank_counts)
            tried = [_misses(name, mode, study.device, ranks) for mode, ranks in everywhere]
            if all(tried) and tried[0] is not None:
                self._fail("levels", tried[0].message, tried[0].hint)

    def _require_limits(self, limits: StudyLimits) -> None:
        if not 0 < limits.interval < 1:
            self._fail("limits.interval", f"an interval of {limits.interval} is not allowed")
        for name in ("seconds", "cell_seconds"):
            if not 0 < getattr(limits, name) < math.inf:
                self._fail(f"limits.{name}", f"{name} is {getattr(limits, name)}")
        if limit_bytes(limits.memory, 1) is None:
            self._fail("limits.memory", f"{limits.memory!r} is not an amount of memory")

    def _require_load(self, study: Study, load: StudyLoad) -> None:
        if study.mode != ("infer",):
            self._fail("mode", "a load test runs inference", 'mode: "infer" alone, with [load].')
        for name in study.levels:
            if not is_callable(ladder.choose(name, "infer", study.device).name, study.device):
                allowed = f"levels for a load test are {', '.join(LEVELS)}."
                self._fail("levels", f"{name} cannot be called from a program", allowed)
        settings = LoadSettings(rates=load.rate, contexts=load.contexts, latency=load.latency)
        settings = replace(settings, percentile=load.percentile, delay=load.delay)
        settings = replace(settings, seconds=load.seconds, repeats=load.repeats)
        if not load.rate:
            self._fail("load.rate", "load.rate is empty")
        try:
            plan_of(replace(settings, max_batch=max(study.batch)), 0)
        except GolowError as error:
            self._fail("load", error.message, error.python_hint)

    def _require_generation(self, study: Study, asked: StudyGeneration) -> None:
        if study.load is not None:
            self._fail("load", "[load] and [generation] are two studies")
        if study.mode != ("infer",):
            self._fail("mode", "text is generated in inference", 'mode: "infer" alone.')
        for name in ("resolution", "input", "channels", "phase"):
            if getattr(study, name):
                self._fail(name, f"texts have no {name}", "leave it out with [generation].")
        for name, least in (("prompt", 1), ("tokens", 2)):
            values = getattr(asked, name)
            if not values or min(values) < least or len(set(values)) < len(values):
                self._fail(f"generation.{name}", f"{name} is {list(values)}")
        for precision in study.precision:
            if precision not in PRECISIONS[study.device]:
                known = ", ".join(PRECISIONS[study.device])
                words = f"no text is generated in {precision} with the device {study.device}"
                self._fail("precision", words, f"precision: {known}.")
        try:
            table.chosen(study.levels, study.device)
        except GolowError as error:
            self._fail("levels", error.message, error.hint)

    def _with_found_files(self, study: Study) -> Study:
        """The study with absolute paths of model files, so that a resume finds them from any
        folder. The study file names them relative to its own folder."""
        found = []
        for name in study.model:
            path, colon, attribute = name.rpartition(":")
            path = path if colon else name
            if path.endswith((".py", ".pt2")):
                file = self._file.parent / path
                if not is_file(file):
                    self._fail("model", f"there is no file {file}")
                name = f"{file.resolve()}{colon}{attribute if colon else ''}"
            found.append(name)
        return msgspec.structs.replace(study, model=tuple(found))

    def _fail(self, key: str, message: str, hint: str = "") -> NoReturn:
        place = self._line_of(key)
        where = f"{self._file}, line {place}" if place else str(self._file)
        allowed = ALLOWED.get(key, "")
        raise GolowError(f"{where}: {message}", hint or (f"{key}: {allowed}." if allowed else ""))

    def _line_of(self, key: str) -> int | None:
        """The line of the key, counted from 1; None if the file does not have it."""
        table, _, name = key.rpartition(".")
        within = ""
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[([\w.-]+)\]", line):
                within = header[1]
                if within == key:
                    return number
            elif within == table and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*=", line):
                return number
        return None


def _misses(name: str, mode: Any, device: Device, ranks: int) -> GolowError | None:
    """Return why the level cannot run in this mode and number of ranks on this device, or None."""
    try:
        ladder.choose(name, mode, device, ranks)
    except GolowError as error:
        return error
    return None
