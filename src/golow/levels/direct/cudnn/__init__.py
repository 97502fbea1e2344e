"""A GPU: direct calls of cuDNN and cuBLASLt, and golow's own CUDA kernels."""
