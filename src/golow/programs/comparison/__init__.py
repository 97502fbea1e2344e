"""Program 1: a model at every level, checked and raced."""
