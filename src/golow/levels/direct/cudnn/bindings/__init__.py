"""The C APIs of cuDNN, cuBLASLt and CUDA."""
