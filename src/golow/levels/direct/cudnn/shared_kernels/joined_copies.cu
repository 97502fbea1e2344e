// Several copies in one launch, such as the parts of a concatenation: neighbouring numbers of
// threads belong to one copy, and a thread copies WIDTH neighbouring elements of it.
//
// The generated code before this file defines Index; POINTERS; SIZES, the ends of the copies'
// numbers, their sizes and strides; COPY, which finds the copy that the number i belongs to and
// where its elements are.

template <int WIDTH, typename X, typename Y>
__device__ inline void copy(const X* from, Y* to) {
  const auto given = load<WIDTH>(from);
  Vector<Y, WIDTH> made;
#pragma unroll
  for (int k = 0; k < WIDTH; ++k) {
    made.item[k] = Stored<Y, decltype(plain(X()))>::of(plain(given.item[k]));
  }
  store<WIDTH>(to, made);
}

__global__ void parts(POINTERS, Index count SIZES) {
  const Index stride = step<1, Index>();
  for (Index i = first_index<1, Index>(); i < count; i += stride) {
    COPY
  }
}
