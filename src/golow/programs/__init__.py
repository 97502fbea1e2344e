"""Programs of golow: each takes a request and returns plain records."""
