// A copy whose elements are shifted around along some axes.
//
// The generated code before this file defines Index, X, WIDTH (elements that a thread copies at once)
// and LOCATE, which finds the place of vector i of the result, `place`, and where it is read, `from`.

__global__ void roll(const X* x, X* y, Index count) {
  const Index step = gridDim.x * blockDim.x;
  for (Index i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    LOCATE
    store<WIDTH>(y + place, load<WIDTH>(x + from));
  }
}
