// Gradients of depthwise weights. A part has some channels of one tap of the kernel; the tap after the last one
// is the bias.
constexpr long LINE = 16;  // channels of a part, whose sums are a vector
typedef float Floats __attribute__((vector_size(4 * LINE), aligned(4)));
INLINE const Floats& at(const float* x) { return *reinterpret_cast<const Floats*>(x); }

// Products of pixels: both move on from pixel to pixel. Four sums do not wait for one another.
INLINE void add_row(Floats* sums, const float* x, long step, const float* outer, long pitch, long count) {
  long k = 0;
  for (; k + 4 <= count; k += 4)
    for (int j = 0; j < 4; j++) sums[j] += at(x + (k + j) * step) * at(outer + (k + j) * pitch);
  for (; k < count; k++) sums[0] += at(x + k * step) * at(outer + k * pitch);
}
INLINE void add_rest(float* sums, const float* x, long step, const float* outer, long pitch, long count,
                     long channels) {
  for (long k = 0; k < count; k++)
    for (long c = 0; c < channels; c++) sums[c] += x[k * step + c] * outer[k * pitch + c];
}
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long images = n[2], blocks = n[3], columns = n[4], height = n[5], width = n[6];
  const long rows = n[7], pitch = n[8], taps_down = n[9], taps_across = n[10];
  const long stride_down = n[11], stride_across = n[12], hole_down = n[13], hole_across = n[14];
  const long top = n[15], left = n[16], biased = n[17];
  const long block = n[18], of_block = n[19], of_row = n[20], of_column = n[21];
  const long taps = taps_down * taps_across, lines = (columns + LINE - 1) / LINE;
  static const float ones[LINE] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (long part = begin; part < end; part++) {
    const long tap = part % (taps + biased), line = part / (taps + biased);
    const long first = line % lines * LINE, left_over = columns - first;
    const long channels = left_over < LINE ? left_over : LINE;
    const bool is_bias = tap == taps;
    const long down = tap / taps_across, across = tap % taps_across;
    const long offset = across * hole_across - left;
    const long from = is_bias || offset >= 0 ? 0 : (stride_across - 1 - offset) / stride_across;
    const long most = (width - 1 - offset) / stride_across + 1;
    const long to = is_bias ? pitch : offset > width - 1 ? 0 : most < pitch ? most : pitch;
    double totals[LINE] = {};
    for (long image = 0; image < images; image++) {
      const long slice = image * blocks + line / lines;
      const float* const x = static_cast<float*>(pointers[0]) + slice * height * width * columns + first;
      const float* const outer = static_cast<float*>(pointers[1]) + slice * rows * pitch * columns + first;
      Floats sums[4] = {};
      float rest[LINE] = {};
      for (long row = 0; row < rows; row++) {
        const long place = row * stride_down + down * hole_down - top;
        if (from >= to || (!is_bias && (place < 0 || place >= height))) continue;
        const float* const values = is_bias
            ? ones : x + (place * width + from * stride_across + offset) * columns;
        const float* const gradients = outer + (row * pitch + from) * columns;
        const long step = is_bias ? 0 : stride_across * columns;
        if (channels == LINE) add_row(sums, values, step, gradients, columns, to - from);
        else add_rest(rest, values, step, gradients, columns, to - from, channels);
      }
      const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      for (long c = 0; c < channels; c++) totals[c] += channels == LINE ? sum[c] : rest[c];
    }
    for (long c = 0; c < channels; c++) {
      const long channel = line / lines * columns + first + c;
      const long where = channel / block * of_block + channel % block + down * of_row + across * of_column;
      static_cast<float*>(pointers[is_bias ? 3 : 2])[is_bias ? channel : where] = static_cast<float>(totals[c]);
    }
  }
}
