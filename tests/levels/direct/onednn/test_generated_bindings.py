"""oneDNN's functions and numbers are those of its header, and those that golow uses."""

from __future__ import annotations

import ctypes
import re
import shutil
from pathlib import Path

import pytest

from golow.levels.compiler import compiler_command
from golow.levels.direct.onednn.bindings import generate
from golow.levels.direct.onednn.bindings.api import FUNCTIONS
from golow.levels.direct.onednn.bindings.constants import AVX_512, ELTWISE, STATUS
from golow.levels.direct.onednn.bindings.library import call
from golow.levels.direct.onednn.level import probe
from support.places import ROOT

SOURCES = ROOT / "src" / "golow" / "levels" / "direct" / "onednn"
FOLDERS = generate.header_folders()


@pytest.fixture
def headers() -> list[Path]:
    """The folders of headers here; the first is that of the library's own version, if it is
    installed, and torch brings those of a newer one."""
    pytest.importorskip("pycparser", reason="pycparser, which reads C, is not installed")
    if compiler_command() is None:
        pytest.skip("there is no compiler, whose preprocessor is needed")
    if not FOLDERS:
        pytest.skip(f"no oneDNN header is installed; the package {generate.PACKAGE} brings one")
    return FOLDERS


@pytest.mark.slow
def test_what_is_committed_is_what_every_installed_header_says(headers: list[Path]) -> None:
    for folder in headers:
        assert generate.generated(folder) == generate.TARGET.read_text(), folder


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("dnnl_types.h", "dnnl_reduction_sum,", "dnnl_other = 7, dnnl_reduction_sum,", ": 8,"),
        ("dnnl_types.h", "DNNL_ARG_BIAS 41", "DNNL_ARG_BIAS 43", '"DNNL_ARG_BIAS": 43,'),
        ("dnnl.h", "char transb, dnnl_dim_t M,", "char transb, int M,", "c_char, c_char, c_int,"),
    ],
)
def test_another_header_gives_other_bindings(
    headers: list[Path], tmp_path: Path, file: str, before: str, after: str, said: str
) -> None:
    shutil.copytree(headers[0] / "oneapi", tmp_path / "oneapi")
    changed = tmp_path / "oneapi" / "dnnl" / file
    text = changed.read_text()
    assert before in text
    changed.write_text(text.replace(before, after))
    committed = generate.TARGET.read_text().splitlines()
    found = [line for line in generate.generated(tmp_path).splitlines() if line not in committed]
    assert found and said in found[0]


def test_a_function_that_the_header_lacks_is_an_error(
    headers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "FUNCTIONS", [*generate.FUNCTIONS, "dnnl_of_tomorrow"])
    with pytest.raises(KeyError, match="dnnl_of_tomorrow"):
        generate.generated(headers[0])


def test_the_list_has_what_golow_uses_and_nothing_else() -> None:
    files = [file for file in SOURCES.rglob("*.py") if file.name not in ("generate.py", "api.py")]
    text = "\n".join(file.read_text() for file in files)
    words = set(re.findall(r"\bdnnl_\w+", text))
    created = {f"dnnl_{name}_primitive_desc_create" for name in generate.PRIMITIVES}
    assert set(generate.FUNCTIONS) - created <= words
    for name in generate.PRIMITIVES:  # those of recurrent layers are put together of two words
        assert f'"{name}"' in text or f'"{name.rpartition("_")[0]}"' in text, name
    numbers = {one for wanted in generate.NUMBERS.values() for one in wanted.split()}
    by_prefix = {one for one in numbers if one.startswith("dnnl_eltwise_")}
    by_prefix |= set(generate.NUMBERS["dnnl_status_t"].split())
    assert numbers - by_prefix <= words
    assert set(generate.MACROS) <= set(re.findall(r"\bDNNL_\w+", text))
    called = set(re.findall(r'(?:call\(\s*"|library\(\)\.|destroy = ")(dnnl_\w+)', text))
    assert len(called) > 30 and called <= set(FUNCTIONS)


def test_tables_by_the_librarys_names() -> None:
    assert STATUS[3] == "unimplemented"
    assert ELTWISE["relu"] == 32 and ELTWISE["clip_v2_use_dst_for_bwd"] == 262
    assert AVX_512 == 0x20


@pytest.mark.skipif(not probe().available, reason="oneDNN is not installed")
def test_a_call_has_the_functions_types() -> None:
    with pytest.raises(AttributeError, match="dnnl_of_tomorrow"):
        call("dnnl_of_tomorrow")
    with pytest.raises(ctypes.ArgumentError):
        call("dnnl_engine_create", ctypes.byref(ctypes.c_void_p()), 1.5, 0)
    with pytest.raises(TypeError, match="at least 3 arguments"):
        call("dnnl_engine_create", ctypes.byref(ctypes.c_void_p()))
