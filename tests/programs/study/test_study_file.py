"""A study file says what is asked, or its error says on which line and what is allowed there."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.study.cell import request_of
from golow.programs.study.cells import cells, key
from golow.programs.study.file import built_in, read_study
from golow.programs.study.memory import GUESSED_BYTES, guessed_bytes
from golow.programs.study.published import with_published
from golow.programs.study.run import find_study
from golow.programs.study.store import to_toml
from golow.programs.study.study_record import Study, StudyLimits, asks
from golow.records.errors import GolowError
from golow.report.study.table import cell_text

WHOLE = """\
name = "mine"
model = ["resnet50", "mlp"]
mode = ["infer", "train"]
levels = ["eager", "torchscript", "vendor"]
device = "cpu"
batch = [8, 16]
resolution = 32
precision = "default"
threads = 2
classes = 20

[limits]
interval = 0.05
memory = "40 GiB"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text)
    return file


def test_a_file_is_read(tmp_path: Path) -> None:
    assert read_study(written(tmp_path, WHOLE)) == Study(
        name="mine",
        model=("resnet50", "mlp"),
        mode=("infer", "train"),
        levels=("eager", "torchscript", "vendor"),
        device="cpu",
        batch=(8, 16),
        resolution=(32,),
        precision=("default",),
        threads=(2,),
        classes=20,
        limits=StudyLimits(interval=0.05, memory="40 GiB"),
    )


def test_little_is_enough_and_the_device_may_be_named_elsewhere(tmp_path: Path) -> None:
    file = written(tmp_path, 'name = "x"\nmodel = "mlp"\nlevels = "vendor"\nbatch = 1\n')
    study = read_study(file, device="cuda")
    assert (study.device, study.mode, study.resolution, study.threads) == (
        "cuda",
        ("infer",),
        (),
        (),
    )
    assert [cell.levels for cell in cells(study, 1)] == [("eager", "cudnn")]


@pytest.mark.parametrize(
    ("old", "new", "line", "says", "hint"),
    [
        ('"resnet50", ', '"resnet5", ', 2, "no model 'resnet5'", "did you mean resnet50"),
        ('"resnet50", ', '"gone.py:Net", ', 2, "gone.py", "golow models"),
        ('["infer", "train"]', '"trian"', 3, "'trian'", "infer, train"),
        ('"vendor"]', '"vendors"]', 4, "no level 'vendors'", "did you mean"),
        ('"torchscript", "vendor"]', '"cudagraph"]', 4, "cuda only", "--device cuda"),
        ('"cpu"', '"gpu"', 5, "'gpu'", "cpu or cuda"),
        ("[8, 16]", "[8, 0]", 6, "batch: 0 is less than 1", "whole numbers"),
        ("[8, 16]", "[8, 8]", 6, "batch has 8 twice", "whole numbers"),
        ("[8, 16]", str([*range(1, 50_001)]), 6, "the study has 200,000 cells", "whole numbers"),
        ("[8, 16]", "9" * 5000, None, "not TOML: Exceeds the limit", "studies.md"),
        ("[8, 16]", "[" * 5000, None, "not TOML", "studies.md"),
        ('"40 GiB"', f'"{"9" * 400} GiB"', 14, "is not an amount of memory", '"80%"'),
        ('name = "mine"', f'name = "{"a" * 101}"', 1, "cannot be called", "up to 100 letters"),
        ("threads = 2", "ranks = [1, 0]", 9, "ranks: 0 is less than 1", "whole numbers"),
        ("threads = 2", "gpus = []", 9, "gpus: the list is empty", "whole numbers"),
        ("threads = 2", "gpus = [1, 2]", 9, 'not for the device "cpu"', "ranks = [1, 2]"),
        ("[8, 16]", "[]", 6, "batch is missing: the list is empty", "whole numbers"),
        ("[8, 16]", '[8, "16"]', 6, "batch: expected `int`, got `str`", "whole numbers"),
        ("resolution = 32", "resolution = 8.5", 7, "resolution: expected `int`", "sides"),
        ('"default"', '"fp16"', 8, "fp16 is for a GPU", "tf32"),
        ('"default"', '"int8"', 3, "a network of the precision int8 is not trained", "infer"),
        ("threads = 2", 'threads = "all"', 9, "threads", "doubling"),
        ("classes = 20", "clases = 20", 10, "no key clases", "did you mean classes"),
        ("interval = 0.05", "interval = 2.0", 13, "an interval of 2.0", "0.02"),
        ("interval = 0.05", 'interval = "small"', 13, "limits.interval: expected `float`", "0.02"),
        ("interval = 0.05", "seconds = 0", 13, "seconds is 0", "more than 0"),
        ('"40 GiB"', '"40 GB"', 14, "'40 GB' is not an amount", '"80%"'),
        ('memory = "40 GiB"', "memories = 1", 14, "no key limits.memories", "limits.memory"),
        ('name = "mine"', 'name = "My Study"', 1, "cannot be called 'My Study'", "a to z"),
        ("interval = 0.05", "cell_seconds = inf", 13, "cell_seconds is inf", "more than 0"),
        ('name = "mine"', "", None, "name is missing", "a to z"),
        ('name = "mine"', "name = mine", None, "not TOML: Invalid value (at line 1", "studies.md"),
    ],
)
def test_an_error_names_the_line_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, line: int | None, says: str, hint: str
) -> None:
    assert WHOLE.count(old) == 1
    file = written(tmp_path, WHOLE.replace(old, new))
    with pytest.raises(GolowError) as raised:
        read_study(file)
    where = f"{file}, line {line}: " if line else str(file)
    assert raised.value.message.startswith(where)
    assert says in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("mode", "axis", "says", "hint"),
    [
        ("train", "ranks", 'ranks are not for the device "cuda"', "gpus = [1, 4]"),
        ("infer", "gpus", "gpus are for training", 'mode = "train"'),
    ],
)
def test_gpus_are_the_axis_of_trainings_on_them(
    mode: str, axis: str, says: str, hint: str, tmp_path: Path
) -> None:
    text = f'name = "x"\nmodel = "mlp"\nmode = "{mode}"\nlevels = "direct"\nbatch = 1\n'
    with pytest.raises(GolowError, match=f"line 6: {says}") as raised:
        read_study(written(tmp_path, f"{text}{axis} = [1, 4]"), device="cuda")
    assert hint in raised.value.hint


def test_a_resolution_that_a_model_cannot_take_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE.replace('"mlp"', '"lenet5"').replace("= 32", "= [8, 32]"))
    with pytest.raises(GolowError, match="line 7: lenet5 needs a resolution of at least 12, got 8"):
        read_study(file)


def test_a_resolution_between_two_that_a_model_takes_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, WHOLE.replace('"mlp"', '"vit_b_16"').replace("= 32", "= [32, 40]"))
    with pytest.raises(GolowError, match="vit_b_16 needs a resolution that is a multiple of 16"):
        read_study(file)


def test_limits_are_a_table(tmp_path: Path) -> None:
    file = written(tmp_path, "limits = 3\n" + WHOLE.partition("[limits]")[0])
    with pytest.raises(GolowError, match="line 1: limits: expected `object`, got `int`"):
        read_study(file)


def test_a_missing_file_and_one_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="there is no file"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(GolowError, match="is not UTF-8 text: byte 0xff in line 1"):
        read_study(tmp_path / "bytes.toml")


def test_a_model_of_a_file_needs_a_resolution(tmp_path: Path) -> None:
    """Otherwise every cell would fail."""
    (tmp_path / "net.py").write_text("first")
    text = 'name = "x"\nmodel = "net.py:Net"\nlevels = "eager"\nbatch = 1\n'
    with pytest.raises(GolowError, match="states no size for the input of ") as caught:
        find_study(written(tmp_path, text), tmp_path)
    assert "resolution = 224" in caught.value.hint
    sized = written(tmp_path, f"{text}resolution = 8\n")
    assert find_study(sized, tmp_path).resolution == (8,)


def test_models_of_files_are_found_beside_the_study_file(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("first")
    text = WHOLE.replace('["resnet50", "mlp"]', '"net.py:Net"').replace("classes = 20", "")
    study = read_study(written(tmp_path, text))
    assert study.model == (f"{tmp_path}/net.py:Net",)
    before = [key(cell) for cell in cells(study, 1)]
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "net.py"
    moved.write_text("first")
    again = read_study(written(moved.parent, text))
    assert [key(cell) for cell in cells(again, 1)] == before  # what is in the file counts
    moved.write_text("second")
    assert not {key(cell) for cell in cells(again, 1)} & set(before)


@given(
    st.builds(
        Study,
        name=st.just("drawn"),
        model=st.just(("mlp", "resnet18")),
        mode=st.sampled_from([("infer",), ("train",), ("train", "infer")]),
        levels=st.just(("eager", "vendor")),
        batch=st.lists(st.integers(1, 5000), min_size=1, unique=True).map(tuple),
        resolution=st.lists(st.integers(1, 5000), unique=True).map(tuple),
        threads=st.just("doubling") | st.lists(st.integers(1, 9), unique=True).map(tuple),
        channels=st.none() | st.integers(1, 9),
        limits=st.builds(
            StudyLimits,
            interval=st.floats(1e-6, 0.9),
            seconds=st.floats(1e-3, 1e9),
            memory=st.sampled_from(["80%", "12.5 %", "3 GiB", "512 MiB"]),
        ),
    )
)
def test_what_is_written_is_read_back(study: Study) -> None:
    with TemporaryDirectory() as folder:
        assert read_study(written(Path(folder), to_toml(study))) == study


def test_the_built_in_studies_are_as_documented() -> None:
    found = {name: read_study(file) for name, file in built_in().items()}
    assert {name: study.name for name, study in found.items()} == {name: name for name in found}
    counts = {name: len(cells(study, hardware_threads=8)) for name, study in found.items()}
    assert counts == {
        "levental-2020": 128,
        "small": 16,
        "threads": 4,
        "precision-five-nets": 40,
        "frameworks": 12,
        "frameworks-gpu": 12,
        "frameworks-quick": 4,
    }
    assert found["levental-2020"].classes == 20
    assert found["levental-2020"].batch == tuple(2**n for n in range(3, 11))


PUBLISHED = """\
name = "published"
model = ["hf:gpt2", "timm:resnet18", "mlp"]
levels = "vendor"
batch = 1
pretrained = false
phase = "decode"
"""


def test_weights_and_phase_are_those_of_published_models(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, PUBLISHED))
    found = {cell.model: (cell.pretrained, cell.phase) for cell in cells(study, 1)}
    assert found == {
        "hf:gpt2": (False, "decode"), "timm:resnet18": (False, ""), "mlp": (None, ""),
    }  # fmt: skip
    assert all(asks(study, cell) for cell in cells(study, 1))
    assert read_study(written(tmp_path, to_toml(study))) == study


def test_options_of_published_models_replace_the_studys(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, PUBLISHED))
    found = with_published(study, pretrained=True, download=False, phase="prefill")
    assert (found.pretrained, found.phase) == (True, "prefill")
    assert with_published(study, pretrained=None, download=False, phase=None) == study
    zoo = read_study(written(tmp_path, WHOLE))
    with pytest.raises(GolowError, match="mine has no such model"):
        with_published(zoo, pretrained=False, download=False, phase=None)


def test_precisions_that_quantise_are_on_the_axis(tmp_path: Path) -> None:
    text = 'name = "x"\nmodel = "mlp"\nlevels = "vendor"\nbatch = 1\nprecision = '
    plain = cells(read_study(written(tmp_path, f'{text}"default"')), 1)
    study = read_study(written(tmp_path, f'{text}["default", "int8", "fp8-weights"]'))
    found = cells(study, 1)
    assert [(cell.precision, cell.calibrate) for cell in found] == [
        ("default", ""), ("int8", "inputs"), ("fp8-weights", "inputs"),
    ]  # fmt: skip
    assert key(found[0]) == key(plain[0]) and len({key(cell) for cell in found}) == 3
    assert all(asks(study, cell) for cell in found)
    assert read_study(written(tmp_path, to_toml(study))) == study
    file = written(tmp_path, f'{text}"int8"\ncalibrate = "digits"\n')
    assert [cell.calibrate for cell in cells(read_study(file), 1)] == ["digits"]
    with pytest.raises(GolowError, match="int8 is for a CPU"):
        read_study(file, device="cuda")


OWN = 'name = "x"\nmodel = "net.py:Net"\nlevels = "eager"\nbatch = 2\n'


def test_a_model_of_a_file_takes_samples_of_the_stated_shape(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("first")
    study = find_study(written(tmp_path, f'{OWN}input = "3x8x12"\n'), tmp_path)
    (cell,) = cells(study, 1)
    assert request_of(cell).input_shape == (3, 8, 12)
    assert asks(study, cell)
    assert cell_text(cell).endswith("Net infer, batch 2, 3x8x12")
    assert read_study(written(tmp_path, to_toml(study))) == study
    (other,) = cells(find_study(written(tmp_path, f"{OWN}resolution = 8\n"), tmp_path), 1)
    assert key(cell) != key(other)
    assert guessed_bytes(cell) == GUESSED_BYTES["infer"][0] * 2 * 3 * 8 * 12


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('input = "3xlarge"', "'3xlarge' is not a shape"),
        ('input = "3x0x8"', "the input 3x0x8 is empty"),
        ("input = 16", "input: expected `str`, got `int`"),
        ('input = "16"\nresolution = 8', "input and resolution both give the shape"),
        ('input = "16"\nmodel = ["mlp"]', "input is not for mlp, whose inputs golow knows"),
        ('input = "16"\n[generation]\nprompt = 8\ntokens = 2', "texts have no input"),
    ],
)
def test_a_stated_shape_is_one_and_for_a_model_that_needs_it(
    line: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text("first")
    text = OWN.replace('model = "net.py:Net"\n', "") if "model" in line else OWN
    with pytest.raises(GolowError, match=f"line [45]: {re.escape(says)}"):
        read_study(written(tmp_path, f"{text}{line}\n"))
