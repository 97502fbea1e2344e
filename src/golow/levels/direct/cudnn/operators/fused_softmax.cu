// softmax of rows, or its logarithm, of functions of elements of some tensors: with m the maximum of
// a row x and s = sum exp(x - m),
//
//   softmax       y = exp(x - m) / s
//   log softmax   y = x - m - log s
//
// The generated code before this file defines Index, WIDTH (columns that a thread takes at once),
// RESULT, the name of x, and five macros: POINTERS; SIZES, the sizes and strides; OUTER, which finds
// the indices i_0, i_1, ... of a row; READ, which loads what WIDTH columns from i_LAST on need; and
// COMPUTE, the functions for column k of these.

template <typename Y, int LANES, int ITEMS, bool LOGARITHM>
__global__ void fused_softmax(POINTERS, Y* y, Index rows, int columns, int pitch SIZES) {
  Held<WIDTH, LANES, ITEMS> held;
  const Index row = held.row(rows);
  OUTER
  held.each(columns, [&](int item, int column) {
    READ
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
      COMPUTE
      held.item[item][k] = RESULT;
    }
  });
  const auto plain = [](float value, int, int) { return value; };
  const float largest = held.combined(columns, __int_as_float(0xff800000), Larger(), plain);
  const auto raised = [=](float value, int, int) { return expf(value - largest); };
  const float sum = held.combined(columns, 0.0f, Sum(), raised), logarithm = logf(sum);
  held.apply(columns, [=](float value, int, int, int) {
    const float centred = value - largest;
    return LOGARITHM ? centred - logarithm : expf(centred) / sum;
  });
  held.write(y + static_cast<size_t>(row) * pitch, columns);
}
