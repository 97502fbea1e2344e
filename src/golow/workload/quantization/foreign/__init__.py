"""Networks quantised by other tools, as golow's layers with the same numbers and scales."""
