// Several functions of each element of some tensors, in one pass over memory.
//
// The generated code before this file defines Index, WIDTH (elements that a thread takes at once,
// side by side along the innermost axis) and five macros: POINTERS; SIZES, the sizes and strides;
// READ, which finds the indices i_0, i_1, ... of the first of these elements and loads inputs
// that are adjacent or the same for all of them; COMPUTE, the functions for element k; WRITE.

__global__ void fused(POINTERS, Index count SIZES) {
  const Index stride = step<WIDTH, Index>();
  for (Index i = first_index<WIDTH, Index>(); i < count; i += stride) {
    READ
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      COMPUTE
    }
    WRITE
  }
}
