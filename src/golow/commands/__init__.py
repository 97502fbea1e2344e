"""One file a group of commands, over the public API; `cli.py` brings them together."""
