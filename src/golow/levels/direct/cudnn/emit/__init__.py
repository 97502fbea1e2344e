"""A built plan as C++ that calls cuDNN, cuBLASLt and compiled kernels."""
