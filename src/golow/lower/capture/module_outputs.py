"""Outputs of a module as a list of tensors: the one order that every level and the check use.

A module may return a tensor, or any nesting of tuples, named tuples, lists, dicts and dataclasses
of tensors; None stands for nothing. PyTorch does not look into a dataclass that is not registered,
so it is registered here when it is first seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils import _pytree as pytree


class Structure(NamedTuple):
    """The form of an output, without its tensors."""

    tree: pytree.TreeSpec
    present: tuple[bool, ...]  # false where a leaf is None

    @property
    def is_tensor(self) -> bool:
        """True if the output is one tensor by itself."""
        return self.tree.is_leaf() and all(self.present)

    def filled(self, tensors: Sequence[Any]) -> Any:
        """The output of this form with these tensors."""
        given = iter(tensors)
        return pytree.tree_unflatten(
            [next(given) if present else None for present in self.present], self.tree
        )


def flattened(output: Any) -> tuple[list[Any], Structure]:
    """The leaves of an output without those that are None, and its form. Leaves are tensors in
    every output that golow accepts."""
    found, tree = pytree.tree_flatten(output)
    unknown = {type(leaf) for leaf in found if _is_plain_dataclass(leaf)}
    if unknown:
        for kind in unknown:
            pytree.register_dataclass(kind)
        return flattened(output)
    present = tuple(leaf is not None for leaf in found)
    return [leaf for leaf in found if leaf is not None], Structure(tree, present)


def leaves_of(output: Any) -> list[Any]:
    """The leaves of an output without those that are None."""
    return flattened(output)[0]


def mapped(change: Callable[[Tensor], Tensor], output: Any) -> Any:
    """The output with every tensor changed."""
    found, structure = flattened(output)
    return structure.filled([change(leaf) if isinstance(leaf, Tensor) else leaf for leaf in found])


def _is_plain_dataclass(leaf: Any) -> bool:
    """True if an instance is made from its fields alone, so that no tensor of it is overlooked."""
    if not is_dataclass(leaf) or isinstance(leaf, type):
        return False
    names = {field.name for field in fields(leaf) if field.init}
    others = {field.name for field in fields(leaf) if not field.init}
    return not others and getattr(leaf, "__dict__", {}).keys() <= names
