"""AOTInductor: packages of torch.compile's kernels, called from C++."""
