"""The public functions: every keyword reaches the program, and importing them stays light."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Unpack

import pytest

import golow
from golow.api import studies
from golow.api.options import with_options
from golow.programs.auditing import audit as auditing
from golow.programs.auditing.audit import AuditSettings
from golow.programs.comparison import compare as comparison
from golow.programs.comparison.settings import ComparisonSettings
from golow.programs.explain import roof as roofing
from golow.programs.explain import support as supporting
from golow.programs.explain.roof import RoofSettings
from golow.programs.life import cycle
from golow.programs.life.settings import LifeSettings
from golow.programs.profiling import profile as profiling
from golow.programs.profiling.profile import ProfileSettings
from golow.programs.study.settings import StudySettings
from golow.programs.training import train as training
from golow.programs.training.request import TrainingOptions, TrainingRequest
from golow.programs.training.training_record import Augmentation, Schedule
from golow.records.workload import Optimizer
from golow.workload.request import GraphOptions, Request, WorkloadOptions

Given = dict[str, Any]
SETTINGS = ComparisonSettings | StudySettings | AuditSettings | RoofSettings | ProfileSettings


class Reached(Exception):
    """The program was called: with these records, and these keywords beside them."""

    def __init__(self, *records: Any, **keywords: Any) -> None:
        super().__init__()
        self.found: Given = dict(keywords)
        for record in records:
            if isinstance(record, Request | TrainingRequest | SETTINGS):
                self.found |= {field.name: getattr(record, field.name) for field in fields(record)}
            elif isinstance(record, Path):
                self.found["out"] = record
            else:
                self.found["observer"] = record


def program(*records: Any, **keywords: Any) -> Any:
    raise Reached(*records, **keywords)


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that only say what they were called with."""
    monkeypatch.setattr(comparison, "compare", program)
    monkeypatch.setattr(auditing, "audit", program)
    monkeypatch.setattr(training, "train", program)
    monkeypatch.setattr(supporting, "support", program)
    monkeypatch.setattr(roofing, "roof", program)
    monkeypatch.setattr(profiling, "profile", program)
    monkeypatch.setattr(studies, "measure_study", program)
    monkeypatch.setattr(studies, "find_study", lambda study, out, device, trust: study)


def distinct(function: Callable[..., object]) -> Given:
    """A value of its own for every parameter of the function."""
    values: Given = {
        name: SimpleNamespace(of=name) for name in inspect.signature(function).parameters
    }
    known = {"out": Path("/out"), "life": False}  # lives have a test of their own below
    known |= {"calibrate": None}  # of a network that is quantised first
    known |= {"precisions": ["ieee"], "folder": None, "way_down": None}  # of profiles
    return values | {name: value for name, value in known.items() if name in values}


def lost(function: Callable[..., object], resolved: tuple[str, ...] = ()) -> list[str]:
    """Parameters whose value does not arrive under their name."""
    given = distinct(function)
    with pytest.raises(Reached) as reached:
        function(**given)
    return [
        name
        for name, value in given.items()
        if name not in (*resolved, "quiet") and reached.value.found.get(name) is not value
    ]


FUNCTIONS: list[tuple[Callable[..., object], tuple[str, ...]]] = [
    (golow.compare, ("life", "life_rounds", "life_cold")),
    (golow.audit, ()),
    (golow.train, ("out",)),
    (golow.support, ("device",)),  # beside the request, which always has one
    (golow.roof, ()),
    (golow.profile, ("precisions", "folder", "way_down")),
    (golow.run_study, ("study", "device", "out", "trust")),  # these make the study that is meant
]


@pytest.mark.parametrize(("function", "resolved"), FUNCTIONS)
def test_every_keyword_reaches_the_program(
    function: Callable[..., object], resolved: tuple[str, ...]
) -> None:
    assert lost(function, resolved) == []


@pytest.mark.parametrize(
    ("options", "record"),
    [(GraphOptions, Request), (WorkloadOptions, Request), (TrainingOptions, TrainingRequest)],
)
def test_options_have_the_types_of_the_record_that_they_become(options: Any, record: Any) -> None:
    types = {field.name: field.type for field in fields(record)}
    for name, annotation in options.__annotations__.items():
        assert types[name] == annotation.__forward_arg__, name


@pytest.mark.parametrize(
    ("function", "unknown"),
    [
        (golow.compare, "bacth"),
        (golow.audit, "workers"),
        (golow.profile, "precision"),  # a field of the request, but not an option here
        (golow.roof, "weights"),
        (golow.support, "threads"),
        (golow.train, "model_name"),
    ],
)
def test_an_unknown_keyword_is_named(function: Callable[..., object], unknown: str) -> None:
    message = rf"{function.__name__}\(\) got an unexpected keyword argument '{unknown}'"
    with pytest.raises(TypeError, match=message):
        function("mlp", **{unknown: 1})


def test_the_signature_spells_out_options_that_are_declared_elsewhere() -> None:
    @with_options(GraphOptions, Request)
    def measured(model: str, *, seconds: float = 1.0, **options: Unpack[GraphOptions]) -> None:
        """Measure it."""

    parameters = inspect.signature(measured).parameters
    assert [*parameters] == ["model", *GraphOptions.__annotations__, "seconds"]
    assert (parameters["batch"].default, parameters["batch"].annotation) == (None, "int | None")
    assert parameters["mode"].default == "infer"
    assert {parameter.kind for parameter in parameters.values()} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
    assert (measured.__name__, measured.__doc__) == ("measured", "Measure it.")


def test_progress_is_shown_unless_quiet_or_observed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def staged(request: Request, settings: ComparisonSettings, observer: Any) -> Any:
        observer.stage("loading something")
        return SimpleNamespace(race=SimpleNamespace(stopped_because="interval"))

    monkeypatch.setattr(comparison, "compare", staged)
    golow.compare("lenet5", quiet=True)
    assert capsys.readouterr().err == ""
    golow.compare("lenet5")
    assert "loading something" in capsys.readouterr().err


def test_the_text_of_an_error_has_its_hint() -> None:
    assert str(golow.GolowError("there is no model", "try lenet5.")).endswith("try lenet5.")
    with pytest.raises(golow.GolowError, match=r"(?s)no comparison.*golow compare"):
        golow.load("nowhere")


def test_a_keyword_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(request: Request, settings: ComparisonSettings, observer: object) -> Any:
        raise Reached(request, replace(settings, cold=False, brief=settings.by_layer), observer)

    monkeypatch.setattr(comparison, "compare", forgetful)
    lives = ("life", "life_rounds", "life_cold")
    assert lost(golow.compare, lives) == ["cold", "brief"]


def test_what_is_asked_of_lives_reaches_their_program(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = SimpleNamespace(race=SimpleNamespace(stopped_because="interval"))

    def reached(request: Request, settings: LifeSettings, comparison: object, _: object) -> Any:
        assert comparison is raced
        raise Reached(
            request, **{field.name: getattr(settings, field.name) for field in fields(settings)}
        )

    monkeypatch.setattr(comparison, "compare", lambda *_: raced)
    monkeypatch.setattr(cycle, "life_cycle", reached)
    given = distinct(golow.compare) | {"life": True, "life_rounds": 7, "turn": None, "ranks": 1}
    with pytest.raises(Reached) as found:
        golow.compare(**given)
    arrived = found.value.found
    assert (arrived["rounds"], arrived["cold"]) == (7, given["life_cold"])
    for name in ("levels", "workers", "cache", "limits", "model", "device", "precision", "seed"):
        assert arrived[name] is given[name], name


@pytest.mark.parametrize(
    ("function", "records"),
    [
        (golow.compare, (Request, ComparisonSettings)),
        (golow.audit, (Request, AuditSettings)),
        (golow.train, (TrainingRequest,)),
        (golow.run_study, (StudySettings,)),
    ],
)
def test_records_and_public_functions_have_the_same_defaults(
    function: Callable[..., object], records: tuple[type, ...]
) -> None:
    """But for those that the function resolves: None stands for the default there."""
    parameters = inspect.signature(function).parameters
    for record in records:
        for field in fields(record):
            if function is golow.audit and field.name == "ranks":
                continue  # settings are those of one process
            default = parameters[field.name].default
            if default is not None and default is not inspect.Parameter.empty:
                assert field.default == default, field.name
            elif field.default is MISSING and field.default_factory is not MISSING:
                made = field.default_factory()
                assert made in (Optimizer(), Schedule(), Augmentation(), {}), field.name


def test_lives_have_the_same_defaults() -> None:
    parameters, settings = inspect.signature(golow.compare).parameters, LifeSettings()
    assert parameters["life_rounds"].default == settings.rounds
    assert parameters["life_cold"].default == settings.cold


def test_a_request_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Request("mlp").batch = 2  # type: ignore[misc]


LIGHT = """
import sys, golow, golow.workload.request
import golow.programs.training.request, golow.programs.comparison.settings
golow.GolowError, golow.Optimizer, golow.Schedule
assert "golow.api" not in sys.modules
golow.load, golow.load_training, golow.load_study, golow.run_study, golow.Result
print({"torch", "scipy", "matplotlib", "pandas"} & set(sys.modules))
"""


@pytest.mark.slow
def test_importing_the_public_functions_imports_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
