"""Properties of a model known from its name, without building it. Importing this imports no
torch."""

from __future__ import annotations

from golow import models

PUBLISHED = ("hf:", "timm:")  # built by golow from a name and files of data


def is_code(model: str) -> bool:
    """True if building the model of that name runs a file or package that the name gives."""
    published = model.startswith(PUBLISHED) or model.endswith(".pt2")
    return not published and model not in models.ZOO
