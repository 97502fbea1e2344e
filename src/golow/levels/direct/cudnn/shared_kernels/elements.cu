// Each element of a result, computed from elements of tensors at places that its indices decide.
//
// The generated code before this file defines Index, POINTERS, SCALARS, LOCATE (the result's
// indices i_0, i_1, ... from i) and COMPUTE (what is read, computed and written).

__global__ void elements(POINTERS, long long count SCALARS) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    LOCATE
    COMPUTE
  }
}
