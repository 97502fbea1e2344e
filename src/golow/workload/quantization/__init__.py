"""Quantised networks: their layers in PyTorch, how they are made, and the file that holds one."""
