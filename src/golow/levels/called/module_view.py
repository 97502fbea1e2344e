"""A second object over a module's own attributes, whose class may become another one."""

from __future__ import annotations

from torch import nn


def view_of(module: nn.Module) -> nn.Module:
    """Return an object that shares all attributes with the module. What its forward pass sets, such
    as a mark that hooks are installed, is set on the module too: it would do it again otherwise."""
    view: nn.Module = object.__new__(type(module))
    object.__setattr__(view, "__dict__", vars(module))
    return view
