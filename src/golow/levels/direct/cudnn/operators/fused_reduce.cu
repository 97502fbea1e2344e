// Sums over some axes of functions of elements of some tensors:
//
//     y[o, i] = factor * sum_r f(o, r, i)
//
// in float32, every sum in a fixed order; columns.cuh says how. The generated code before this file
// defines Index, WIDTH (columns that a thread takes at once), RESULT, the name of f, and six macros:
// POINTERS; SIZES, the sizes and strides; OUTER and ROW, which find the indices i_0, i_1, ... of the
// outer axes and of a row; READ, which loads what WIDTH columns need; and COMPUTE, the functions for
// column k of these.

template <typename Y, int THREADS>
__global__ void __launch_bounds__(THREADS)
    fused_reduce(POINTERS, Y* y, float* partial, unsigned* arrivals, long long reduced,
                 long long inner, int tiles, float factor SIZES) {
  const Share share = share_of<WIDTH>(reduced, tiles);
  OUTER
  sum_over_rows<1, WIDTH, THREADS>(
      share, inner, partial, arrivals,
      [=](long long row) {
        ROW
        READ
        Vector<float, WIDTH> found;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
          COMPUTE
          found.item[k] = static_cast<float>(RESULT);
        }
        return found;
      },
      [](const Vector<float, WIDTH>& values, float (&sums)[1][WIDTH]) {
#pragma unroll
        for (int v = 0; v < WIDTH; ++v) sums[0][v] += values.item[v];
      },
      [=](int, long long i, float sum) {
        y[share.outer * inner + i] = static_cast<Y>(factor * sum);
      });
}
