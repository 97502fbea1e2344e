"""Networks that others quantised, as golow's quantised layers with their numbers and scales."""
