"""Writes the listings of the quickstart and of the page on comparisons: what the program prints.

    python docs/generate_quickstart.py          # shows the stored results as the program does now
    python docs/generate_quickstart.py --run    # runs the commands again and stores the results

A listing stands in the page below a line `<!-- listing: NAME -->`. Its numbers are stored in
`docs/start/quickstart/`: a comparison as its record, which is shown by the present program;
everything else as text. `tests/repo/test_quickstart.py` fails when a page is not what this writes.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from golow.records.comparison import Comparison
from golow.report.comparison.table import render
from golow.report.console import WIDTH, PlainConsole

DOCS = Path(__file__).parent
PAGES = (DOCS / "start" / "quickstart.md", DOCS / "use" / "compare.md")
STORED = DOCS / "start" / "quickstart"
LISTING = re.compile(r"^(<!-- listing: (\w+) -->\n```\n)(.*?)^```$", re.MULTILINE | re.DOTALL)

COMPARED = "golow compare lenet5 --levels eager,torchscript,libtorch,onednn --threads 1"
RECORDS = {"compare": f"{COMPARED} --time-limit 8"}
TEXTS = {
    "lower": "golow lower lenet5",
    "emit": "golow emit lenet5 --out lenet5_cpp",
    "support": "golow levels --support ./mynet.py:Net --input 3x8x8",
    "doctor": "golow doctor",
}
MODEL = STORED / "mynet.py"  # is stored in the folder in which the commands run


def page(text: str) -> str:
    """The page with every listing as it is now; raises `KeyError` for one that is not known."""
    return LISTING.sub(lambda found: f"{found[1]}{listing(found[2])}```", text)


def listing(name: str) -> str:
    """The command, and what it prints."""
    if name in RECORDS:
        return f"$ {RECORDS[name]}\n{shown(STORED / f'{name}.json')}"
    return f"$ {TEXTS[name]}\n{(STORED / f'{name}.txt').read_text()}"


def shown(record: Path) -> str:
    """The stored comparison, as the program shows it in a file."""
    output = io.StringIO()
    comparison = msgspec.json.decode(record.read_bytes(), type=Comparison)
    render(comparison, PlainConsole(file=output, width=WIDTH, markup=False))
    return tidy(output.getvalue())


def tidy(text: str) -> str:
    """Without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def run(command: str, folder: Path, *more: str) -> str:
    """What the command prints to standard output in that folder, which is called /home/me; nothing
    has been built before."""
    arguments = command.split()[1:]
    shutil.copy(MODEL, folder)
    done = subprocess.run(
        [sys.executable, "-m", "golow", *arguments, *more],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(WIDTH), "GOLOW_CACHE": str(folder / "cache")},
    )
    if not done.stdout:
        raise RuntimeError(f"{command} printed nothing: {done.stderr}")
    return tidy(done.stdout.replace(str(folder), "/home/me"))


def store() -> None:
    """Run every command and store what it gives. A record is kept without its samples."""
    with TemporaryDirectory() as folder:
        for name, command in TEXTS.items():
            (STORED / f"{name}.txt").write_text(run(command, Path(folder)))
        for name, command in RECORDS.items():
            file = Path(folder) / f"{name}.json"
            run(command, Path(folder), "--json", str(file))
            keep(file, STORED / f"{name}.json")


def keep(file: Path, place: Path) -> None:
    """Write the record of a comparison without samples, which the table does not need."""
    record = msgspec.json.decode(file.read_bytes(), type=Comparison)
    runs = tuple(
        msgspec.structs.replace(
            one, blocks=(), check=msgspec.structs.replace(one.check, tensors=())
        )
        for one in record.runs
    )
    data = msgspec.json.encode(msgspec.structs.replace(record, runs=runs))
    place.write_bytes(msgspec.json.format(data, indent=1) + b"\n")


if __name__ == "__main__":
    if "--run" in sys.argv[1:]:
        store()
    for file in PAGES:
        file.write_text(page(file.read_text()))
