// A copy between two orders in memory whose innermost axes differ: x has elements of axis a side by
// side, y those of axis b.
//
// A thread loads VB vectors of VA elements of x, turns them in its registers, and stores VA vectors
// of VB elements of y. Of 32 threads, ACROSS lie along a and the others along b, so that what they
// load and store together are whole sectors of 32 bytes.
//
// The generated code before this file defines Index, VA, VB, ACROSS and the types X and Y; POINTERS;
// SIZES: size_a, size_b in vectors, the step of x along b and of y along a, then further sizes and
// strides; LOCATE, which finds x_place and y_place from the rest of an index.

__global__ void turned(POINTERS, Index count SIZES) {
  constexpr Index DOWN = 32 / ACROSS;
  const Index tiles_a = (size_a + ACROSS - 1) / ACROSS, tiles_b = (size_b + DOWN - 1) / DOWN;
  const Index stride = step<1, Index>();
  for (Index i = first_index<1, Index>(); i < count; i += stride) {
    Index rest = i / 32;
    const Index a = rest % tiles_a * ACROSS + i % ACROSS;
    rest /= tiles_a;
    const Index b = rest % tiles_b * DOWN + i % 32 / ACROSS;
    rest /= tiles_b;
    if (a >= size_a || b >= size_b) continue;
    LOCATE
    Vector<X, VA> given[VB];
#pragma unroll
    for (int k = 0; k < VB; ++k)
      given[k] = load<VA>(x0_in + (x_place + a * VA + (b * VB + k) * x_b));
#pragma unroll
    for (int j = 0; j < VA; ++j) {
      Vector<Y, VB> made;
#pragma unroll
      for (int k = 0; k < VB; ++k) {
        const auto value = plain(given[k].item[j]);
        made.item[k] = Stored<Y, decltype(plain(X()))>::of(value);
      }
      store<VB>(y0_in + (y_place + (a * VA + j) * y_a + b * VB), made);
    }
  }
}
