"""One file per group of commands, built on the public API; `cli.py` puts them together."""
