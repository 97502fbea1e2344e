"""How golow reads and writes the disk: whole files, cache, locks."""
