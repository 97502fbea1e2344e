// A formula for each element.
//
// The generated code before this file defines what is computed, in four macros: PARAMETERS, the
// pointers; READ, the vectors of each input at index i; COMPUTE, the formula for item k of them;
// WRITE, the vectors of each output. An input may have one value for each innermost channel, whose
// index is i % channels, or a single one. VECTOR_LENGTH then divides channels: no vector wraps.

__global__ void pointwise(PARAMETERS, Index count, Index channels) {
  const Index stride = step<VECTOR_LENGTH, Index>();
  for (Index i = first_index<VECTOR_LENGTH, Index>(); i < count; i += stride) {
    READ
#pragma unroll
    for (int k = 0; k < VECTOR_LENGTH; ++k) {
      COMPUTE
    }
    WRITE
  }
}
