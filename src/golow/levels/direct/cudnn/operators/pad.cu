// Each element of a tensor surrounded by a constant, in one pass over the result.
//
// The generated code before this file defines Index; T; WIDTH, elements that a thread takes at once,
// side by side; CONSTANT; LOCATE, which finds from a vector's number i its place, where it is read,
// and whether it is inside.

__global__ void pad(const T* x, T* y, Index count) {
  const Index step = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    LOCATE
    Vector<T, WIDTH> made;
    if (inside) {
      made = load<WIDTH>(x + from);
    } else {
#pragma unroll
      for (int k = 0; k < WIDTH; ++k) made.item[k] = static_cast<T>(CONSTANT);
    }
    store<WIDTH>(y + place, made);
  }
}
