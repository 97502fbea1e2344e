"""The levels inside PyTorch: eager, TorchScript, torch.compile, CUDA graphs."""
