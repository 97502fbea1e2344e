"""Each activation's name and numbers in oneDNN, one file for each."""
