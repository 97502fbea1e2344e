"""Pages, docstrings, comments and messages are in the words of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.places import DOCS, ROOT

GENERATED = {"commands.md", "choices.md"}
PAGES = [*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if page.name not in GENERATED)]
SOURCES = sorted(
    file
    for folder in ("src", "tests", "benchmarks", "examples")
    for kind in ("py", "cpp", "h", "cu", "cuh")
    for file in (ROOT / folder).rglob(f"*.{kind}")
    if file != Path(__file__)
)
RECOMMENDED = re.compile(r"^\| not \| but \|\n(?:\|.*\n)+", re.MULTILINE)

# ---------------------------------------------------------------- phrases of pages

# Phrases that the pages once had; CONTRIBUTING.md says what to write instead.
BANNED = re.compile(
    "|".join(
        [
            "lies? as whoever",
            "lies? alike",
            "lies? the (?:other )?way round",
            "lies? (?:side by side|one after)",
            "sa(?:ys|id) at length",
            "whose small part comes first",
            "rows come in order",
            "it is right now",
            "vocabulary rightly",
            "tracer had made",
            "trained in training",
            "w(?:as|ere) not reached",
            "damaged record",
            "arrived damaged",
            "no names and texts",
            r"\b(?:is|are) no (?:record|json|float|number|tensor|export|activation)s?\b",
            r"\bmend(?:s|ed|ing)?\b",
            r"\bthe cards?\b",
            "in a row of its own",
            r"does not tell it\b",
            r"\b(?:nobody|somebody)\b",
            "what is timed is what",
            r"\bin force\b",
            "for (?:want of|ever)\\b",
            r"(?:images|requests|answers|bytes|operations) a second\b",
            r"(?:images|samples|batch \d+) a rank\b",
            "need not be here",
            "costs in the task",
            "half precisions",
            "and no PyTorch",
            "in the median",
            "models of transformers",
        ]
    ).replace(" ", r"\s+"),
    re.IGNORECASE,
)


def banned(text: str) -> list[str]:
    """Banned phrases of the text, but for the table that says what to write instead."""
    return [found[0] for found in BANNED.finditer(RECOMMENDED.sub("", text))]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name != "notes"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_has_no_banned_words(page: Path) -> None:
    assert banned(page.read_text()) == []


def test_banned_words_are_seen() -> None:
    text = "x.json is no\nrecord; mend it.\n\n| not | but |\n|---|---|\n| to mend | to fix |\n"
    assert banned(text) == ["is no\nrecord", "mend"]
    assert banned("recommended amendments are no recorders") == []


# ---------------------------------------------------------------- sentences of the whole project

SENTENCES = (
    "Results that lie as",
    "What a mask says at length",
    "lies the way round",
    "by its rows, the other one by its sum",
    "small part comes first and is added",
    "Rows come in order before",
    "say in a word what its arguments say",
    "read what another step had written over",
    "an odd vocabulary rightly",
    "parts that lie alike",
    "had made gathers and scattered sums",
    "that were trained in training",
    "it was not reached",
    "what it is made of has the size",
    "has a damaged record",
    "its files are no names and texts",
    "is no JSON with a model_type",
    "arrived damaged",
    "is no record",
    "lives cannot be measured while",
    "the caller can mend",
    "Is told how far",
    "The same of batch norm",
    "what is no float",
    "of its own in a row of its own",
    "the runtime does not tell it",
    "what of a cleaned graph",
    "What a worker gets.",
    "What is timed is what was proved",
    "may not tear apart",
    "choices that nobody made",
    "if somebody reads it",
    "takes leave of the other ranks",
    "levels that lack nothing",
    "others compute here",
    "is no size of a group",
    "are no groups of",
    "leaves that of eager:static",
    "where 0.0002 would be rounding",
)
# Records of earlier versions hold these words, which golow still reads.
READ_FROM_RECORDS = {
    ("src/golow/report/study/rows.py", "it was not reached"),
    ("tests/report/test_study_export.py", "it was not reached"),
}


def sentences(text: str) -> list[str]:
    """Sentences of the list that the text has, also over the lines of a comment or a string."""
    joined = re.sub(r"\"?\s*\n\s*(?:#|//|\*|f?\")?", " ", RECOMMENDED.sub("", text))
    flat = " ".join(joined.split()).lower()
    return [sentence for sentence in SENTENCES if sentence.lower() in flat]


def test_no_file_has_a_sentence_that_was_reworded() -> None:
    found = {
        (str(file.relative_to(ROOT)), sentence)
        for file in (*SOURCES, *PAGES)
        if file.parent.name != "notes"
        for sentence in sentences(file.read_text())
    }
    assert found - READ_FROM_RECORDS == set()


def test_a_reworded_sentence_is_seen() -> None:
    assert sentences("# Errors that the caller\n# can mend, or not.\n") == ["the caller can mend"]
    assert sentences('f"{x} is no "\n    f"record of a run"') == ["is no record"]
    assert sentences("there is none; no record") == []


# ---------------------------------------------------------------- docstrings

# Phrases that docstrings once had, each with the usual one.
UNUSUAL = {
    r"\bin force\b": "in effect",
    r"\bheld against\b": "compared with",
    r"\bfor want of\b": "for lack of",
    r"\bfor ever\b": "forever",
    r"\ba (?:row|panel|bar) an? (?!time\b)\w+": "one row per level",
    r"^As of `": "As in `",
    r"\bof one's own\b": "your own",
    r"\b(?:bytes|requests|samples|operations) a second\b": "bytes per second",
    r"\bwhat goes wrong (?:at|in) a level\b": "a failure of a level",
    r"\bgive (?:all|the) memory back\b": "release the memory",
    r"\bsettings without sense\b": "invalid settings",
}


FIRST_WORDS = ("What ", "Whether ", "The same", "Of ", "That of ", "Is told ")
PATTERN = re.compile("|".join(UNUSUAL), re.IGNORECASE)


def unusual(source: str) -> Iterator[tuple[int, str]]:
    """Line of each docstring, also below a constant, that begins badly or has such a phrase."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                flat = " ".join(text.split())
                if flat.startswith(FIRST_WORDS):
                    yield node.lineno, " ".join(flat.split()[:4])
                yield from ((node.lineno, found[0]) for found in PATTERN.finditer(flat))


def test_docstrings_begin_with_a_verb_or_a_noun_and_have_the_usual_phrases() -> None:
    found = {
        str(file.relative_to(ROOT)): list(unusual(file.read_text()))
        for file in (ROOT / "src").rglob("*.py")
    }
    assert {file: words for file, words in found.items() if words} == {}


def test_a_docstring_that_begins_otherwise_is_seen() -> None:
    source = 'LIMIT = 2\n"""Of the check."""\n\ndef f():\n    """Whether it is\n    so."""\n'
    assert list(unusual(source)) == [(2, "Of the check."), (5, "Whether it is so.")]
    assert list(unusual('def f():\n    """Offset of the buffer."""\n')) == []


def test_an_unusual_phrase_is_seen() -> None:
    source = '"""A row a level; rates are\nrequests a second."""\n'
    assert list(unusual(source)) == [(1, "A row a level"), (1, "requests a second")]
    assert list(unusual('"""One row per level, a second time in a row."""\n')) == []
