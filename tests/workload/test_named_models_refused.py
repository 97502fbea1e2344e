"""Names that `prepare` refuses, since no model has them: files, classes, packages and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from golow.records.errors import GolowError
from support.models.model_files import FILE, refusal

pytestmark = pytest.mark.usefixtures("forked", "own_imports")


@pytest.mark.parametrize(
    ("model", "message", "hint"),
    [
        ("resnet5O", "there is no model 'resnet5O' in the zoo", "did you mean resnet50"),
        ("restnet", "there is no model 'restnet'", "resnet18"),
        ("xyzzy", "there is no model 'xyzzy'", "`golow models` lists them"),
        ("nowhere.py:Net", "there is no file nowhere.py", "check the path"),
        ("nowhere.pt2", "there is no file nowhere.pt2", ""),
        ("mynet.py", "names a file but no model in it", "write mynet.py:ClassName"),
        ("nowhere.models:build", "the module nowhere.models cannot be imported", "install it"),
        (
            "mine.models.Net",
            "there is no model 'mine.models.Net'",
            "did you mean mine.models:Net? ",
        ),
        ("mine.pt", "mine.pt is not code", "--weights FILE.safetensors"),
        ("mine.onnx", "mine.onnx is not code", "file.py:Name"),
    ],
)
def test_there_is_no_such_model(model: str, message: str, hint: str) -> None:
    refused = refusal(model, input_shape=(16,))
    assert message in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("net.py", "write net.py:One; it has One, Two."),
        ("broken.py", "write broken.py:ClassName or broken.py:build."),
        ("./net:One", "did you mean net.py:One? "),
        ("net", " net.py:NAME? "),
        ("./hub:tiny", "did you mean hub/hubconf.py:tiny? "),
        ("https://host/models/net", "give file.py:Name"),
    ],
)
def test_a_file_without_the_name_of_a_model(
    model: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("class One: ...\nclass Two: ...\nraise SystemExit\n")
    (tmp_path / "broken.py").write_text("class One\n")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "hubconf.py").write_text("def tiny(): ...\n")
    refused = refusal(model, input_shape=(16,))
    assert "no model" in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("Nett", "has no 'Nett'", "mynet.py:Net? it has Net, "),
        ("NET", "has no 'NET'", "mynet.py:Net? it has Net, "),
        ("bild", "has no 'bild'", "mynet.py:build? it has build, build_nothing, "),
        ("xyzzy", "has no 'xyzzy'", "it has "),
        ("", "has no ''", "it has Net, Versioned, Needy, Broken, "),
        ("Needy", "missing 1 required positional argument: 'classes'", "without arguments"),
        ("Broken", "no weights at /data/weights", "without arguments"),
        ("number", "'int' object is not callable", "without arguments"),
        ("build_nothing", "returns a int, not a torch.nn.Module", ""),
        ("Talks", "the output of", "return a tensor"),
        ("Silent", "the output of", "return a tensor"),
        ("Counts", "is not a tensor: it contains Tensor, int", "return a tensor"),
        ("Empty", "has no elements: 0x16", "nothing to compare"),
    ],
)
def test_what_the_file_names_is_no_model(file: Path, name: str, message: str, hint: str) -> None:
    refused = refusal(f"{file}:{name}", input_shape=(16,))
    assert message in refused.message
    assert hint in refused.hint
    assert_shows_only_the_users_code(refused)


def test_a_package_may_collect_models_of_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "nets.py").write_text(FILE)
    (package / "__init__.py").write_text("from .nets import Net, build\n")
    monkeypatch.chdir(tmp_path)
    refused = refusal("mypackage:Nett", input_shape=(16,))
    assert refused.message == "mypackage has no 'Nett'"
    assert refused.hint == "did you mean mypackage:Net? it has Net, build."
    refused = refusal("mypackage:Net(16)", input_shape=(16,))
    assert refused.hint.endswith("def build(): return Net(16), and give mypackage:build.")
    refused = refusal("mypackage/nets.py:Nett", input_shape=(16,))
    assert refused.hint.startswith("did you mean mypackage/nets.py:Net? it has Net, ")


def assert_shows_only_the_users_code(refused: GolowError) -> None:
    """A traceback in it, if there is one, has none of golow's, torch's or Python's own frames."""
    frames = [line for line in refused.message.splitlines() if line.lstrip().startswith("File ")]
    assert all("mynet.py" in frame or "neighbour.py" in frame for frame in frames)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f():\n    return {}['weights']\n\nf()\n", ("line 2", "KeyError: 'weights'")),
        ("def f(:\n", ("line 1", "SyntaxError")),
        ("import no_such_package\n", ("line 1", "No module named 'no_such_package'")),
        ("import sys\nsys.exit('usage: mynet.py FILE')\n", ("line 2", "SystemExit: usage")),
        ("import neighbour\n", ("neighbour.py", "line 1", "ZeroDivisionError")),
        ("\n".join(f"def f{i}(): f{i + 1}()" for i in range(9)) + "\nf0()", ("f9", "NameError")),
    ],
)
def test_a_file_that_does_not_import(
    file: Path, tmp_path: Path, code: str, words: tuple[str, ...]
) -> None:
    """The user's own traceback, shortened to its end."""
    file.write_text(code)
    (tmp_path / "neighbour.py").write_text("1 / 0\n")
    refused = refusal(f"{file}:Net", input_shape=(16,))
    assert f"{file} cannot be imported:" in refused.message
    for word in words:
        assert word in refused.message
    assert len(refused.message.splitlines()) <= 15
    assert_shows_only_the_users_code(refused)


@pytest.mark.parametrize(
    ("code", "line", "hint"),
    [
        (
            "import argparse\nparser = argparse.ArgumentParser()\n"
            "parser.add_argument('width')\nparser.parse_args([])\n",
            "parser.parse_args([])",
            "move what it does as a script into a function",
        ),
        ("from .neighbour import x\n", "from .neighbour import x", "from the folder above: "),
        ("import json\njson.loads('{')\n", "json.loads('{')", ""),
    ],
)
def test_an_import_that_fails_shows_the_users_line(
    file: Path, code: str, line: str, hint: str
) -> None:
    """Not those of the standard library that it called."""
    file.write_text(code)
    refused = refusal(f"{file}:Net", input_shape=(16,))
    assert f"    {line}\n" in refused.message
    assert refused.message.count("File ") == 1
    assert hint in refused.hint


def test_a_forward_pass_that_fails_shows_where(file: Path) -> None:
    """In the user's code, however deep torch is beneath and above it."""
    refused = refusal(f"{file}:Fails", batch=2, input_shape=(15,))
    assert "does not accept an input of 2x15" in refused.message
    assert "mat1 and mat2 shapes cannot be multiplied" in refused.message
    assert "return self.fc(x)" in refused.message
    assert "--input" in refused.hint
    assert "example_inputs=" in str(refused), "a user of Python may have given them"
    assert_shows_only_the_users_code(refused)


@pytest.mark.parametrize("data", [b"", b"no program", b"PK\x03\x04 no program either"])
def test_a_program_that_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "mine.pt2").write_bytes(data)
    refused = refusal(str(tmp_path / "mine.pt2"), input_shape=(16,))
    assert "mine.pt2 is not an exported program that torch" in refused.message
    assert "torch.export.save" in refused.hint
