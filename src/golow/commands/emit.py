"""``golow emit``: write a model as a C++ project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from golow.commands.options import Model, no_stream
from golow.commands.workload_flags import InputFlags, NetworkFlags, graph_options


def emit(
    model: Model,
    out: Annotated[
        Path, typer.Option(help="Folder to create for the project.", callback=no_stream)
    ],
    *,
    inputs: InputFlags,
    network: NetworkFlags,
) -> None:
    """Write a model as a C++ program: a CMake project that builds and runs without golow."""
    from golow.levels.libtorch.emission import emit as write
    from golow.workload.prepare import prepare
    from golow.workload.request import Request

    request = Request(
        model,
        **graph_options(inputs, network.channels, network.classes, network.loss),
        weights=network.weights,
        initialisation=network.init,
    )
    files = write(prepare(request), out)
    for file in files:
        print(file)
    print(f"To build and run it, see {out / 'README.md'}.")
