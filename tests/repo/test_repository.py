"""The files beside the code agree with it: commands of continuous integration, versions, hooks,
issue forms, the citation."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.pages.page_commands import commands, unknown
from support.places import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MADE = re.compile(r"^ *(?:- run: )?make ([\w-]+)", re.MULTILINE)


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def lines_of(target: str) -> list[str]:
    """The commands that make would run, but for those that make the environment."""
    printed = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    tools = ("/ruff", "/mypy", "/pytest")
    return [line for line in printed.stdout.splitlines() if line.partition(" ")[0].endswith(tools)]


# ---------------------------------------------------------------- the commands


def selected(target: str) -> str:
    """The tests that a target runs, as pytest's option -m states them."""
    command = shlex.split(lines_of(target)[-1])
    return command[command.index("-m") + 1]


def test_the_three_parts_of_the_tests_are_all_tests() -> None:
    parts = [lines_of(target) for target in ("test", "test-rest", "test-long")]
    assert lines_of("test-all") == [line for part in parts for line in part]
    first, *others = parts
    assert [line.split("/")[-1].split()[0] for line in first] == ["ruff", "ruff", "mypy", "pytest"]
    assert [len(part) for part in others] == [1, 1]
    expressions = [selected(target) for target in ("test", "test-rest", "test-long")]
    for slow, whole, drawn in product([False, True], repeat=3):
        test = {"slow": slow, "whole_network": whole, "hypothesis": drawn}
        runs = [bool(eval(expression, {}, test)) for expression in expressions]  # noqa: S307
        # A test that draws its examples runs with few of them, and then with all.
        assert sum(runs) == 1 + (drawn and not whole)


def test_one_machine_runs_the_readmes_command_and_then_the_rest() -> None:
    documented = re.search(r"^make (test\S*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert documented is not None
    assert MADE.findall((ROOT / ".ci" / "run").read_text()) == [
        "docs",
        documented[1],
        "test-rest",
    ]


def test_the_workflow_runs_both_commands_on_every_python() -> None:
    jobs = read(WORKFLOW)["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    classifier = "Programming Language :: Python :: 3."
    supported = [one.split()[-1] for one in PROJECT["classifiers"] if one.startswith(classifier)]
    assert matrix == {"python": supported, "command": ["test", "test-all"]}
    assert jobs["test"]["steps"][-1]["run"] == "make ${{ matrix.command }}"
    for job in ("docs", "wheel"):
        assert f"make {job}" in [step.get("run") for step in jobs[job]["steps"]]


def test_the_workflow_may_only_read_and_names_major_versions() -> None:
    workflow = read(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) > 4
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+", name)] == []


# ---------------------------------------------------------------- versions


def requirements(project: dict[str, Any], extra: str) -> Iterator[str]:
    """The names of the packages that the extra asks for, through golow's other extras, too."""
    for requirement in project["optional-dependencies"][extra]:
        if own := re.match(rf"{project['name']}\[(.+)\]", requirement):
            for name in own[1].split(","):
                yield from requirements(project, name)
        else:
            yield re.split(r"[^\w.-]", requirement)[0]


def pinned(constraints: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+)==\S+$", constraints, re.MULTILINE))


def test_what_the_tests_need_is_pinned() -> None:
    needed = {re.split(r"[^\w.-]", one)[0] for one in PROJECT["dependencies"]}
    needed |= {name for extra in ("test", "docs") for name in requirements(PROJECT, extra)}
    assert needed - pinned((ROOT / "constraints.txt").read_text()) == set()


def test_what_is_not_pinned_is_seen() -> None:
    extras = {"test": ["pytest>=8", "golow[a,b]"], "a": ["one>=1"], "b": ["golow[c]"], "c": ["two"]}
    needed = set(requirements({"name": "golow", "optional-dependencies": extras}, "test"))
    assert needed - pinned("pytest==9.2.0\none>=1\n") == {"one", "two"}


def test_hooks_are_the_tools_of_the_environment() -> None:
    hooks = [
        hook for one in read(ROOT / ".pre-commit-config.yaml")["repos"] for hook in one["hooks"]
    ]
    tools = [hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks]
    assert tools == ["ruff", "ruff", "mypy"]
    assert all(hook["language"] == "system" for hook in hooks)
    assert set(tools) <= pinned((ROOT / "constraints.txt").read_text())


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    for key, name in (("title", "name"), ("version", "version"), ("license", "license")):
        assert citation[key] == PROJECT[name]
    assert citation["keywords"] == PROJECT["keywords"]
    assert "arXiv:2012.07163" in (ROOT / "src/golow/report/levental2020_accuracy.json").read_text()
    assert citation["references"][0]["identifiers"][0]["value"] == "arXiv:2012.07163"


# ---------------------------------------------------------------- the page for contributors


def missing_paths(text: str) -> list[str]:
    """Files and folders in the page's words and commands that the repository does not have."""
    named = re.findall(r"[` ]((?:tests|docs|src|\.github|\.ci)/[\w/.-]*\w)", text)
    named += [
        f"src/golow/{name}" for name in re.findall(r"`((?:records|programs)/[\w/]+\.py)`", text)
    ]
    return [name for name in named if not (ROOT / name).exists()]


def test_the_page_for_contributors_names_what_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert missing_paths(page) == []
    moved = page.replace("tests/support/plants/noise", "tests/noise")
    moved = moved.replace("programs/comparison/store", "programs/store")
    assert missing_paths(moved) == ["tests/noise.py", "src/golow/programs/store.py"]


# ---------------------------------------------------------------- issues


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_a_form_asks_what_github_can_show(file: Path) -> None:
    form = read(file)
    assert set(form) == {"name", "description", "labels", "body"}
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in asked} <= {"textarea", "dropdown"}
    assert len({part["id"] for part in asked}) == len(asked)
    assert all(part["attributes"]["label"] for part in asked)
    assert any(part["validations"]["required"] for part in asked)
    text = file.read_text()
    text += "".join(f"`{part['attributes'].get('placeholder', '')}`" for part in asked)
    assert [words for words in commands(text) if unknown(words)] == []


def test_whoever_reports_is_asked_for_the_machine_the_command_and_the_record() -> None:
    assert len(FORMS) == 3
    for name in ("bug_report.yml", "wrong_result.yml"):
        asked = {part.get("id") for part in read(FORMS[0].with_name(name))["body"]}
        assert asked >= {"doctor", "command", "record"}
