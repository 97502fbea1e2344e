"""What golow runs: each program takes what was asked and returns plain records."""
