"""The sections of an HTML page, a file for each kind of record."""
