"""A CPU: direct calls of oneDNN, and kernels that golow generates in C++."""
