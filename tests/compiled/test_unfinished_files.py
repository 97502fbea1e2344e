"""What golow was about to write when it was interrupted does not block the next attempt."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from golow.compiled.kept_models import BUILT, keep_model
from golow.levels.direct.emit.project import write_files
from golow.observer import Silent
from golow.storage.project_folder import MARKER, require_project_place
from golow.workload.request import Request


def test_an_interrupted_build_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "model.onnx").write_text("a model")
    monkeypatch.setitem(BUILT, "onnxruntime", lambda *_: tmp_path / "built")
    out, request = tmp_path / "out", Request("mlp", batch=2)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(shutil, "copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keep_model("onnxruntime", request, out, Silent())
    assert not out.exists()
    files = keep_model("onnxruntime", request, out, Silent())
    assert [file.name for file in files] == ["load_model.py", "model.onnx"]


def test_an_unfinished_project_leaves_no_new_folder_and_may_be_written_again(
    tmp_path: Path,
) -> None:
    broken, project = {"plan.cpp": "\ud800", "README.md": MARKER}, tmp_path / "project"  # no UTF-8
    with pytest.raises(UnicodeEncodeError):
        write_files(None, project, broken, {}, ())  # type: ignore[arg-type]
    assert not project.exists()
    project.mkdir()
    (project / "README.md").write_text(MARKER)
    with pytest.raises(UnicodeEncodeError):
        write_files(None, project, broken, {}, ())  # type: ignore[arg-type]
    assert (project / "README.md").exists()
    require_project_place(project)
