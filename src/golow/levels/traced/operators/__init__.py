"""Operators that frameworks spell alike but for their names, over a `Dialect`, found by looking
into the folder. A framework's own folder has the others."""
