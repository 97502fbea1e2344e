// Means over windows, and their gradients.
//
// The mean divides by the clipped area. If padding counts, it divides by the area clipped to the
// padded image, so a window that overhangs because of ceil_mode counts less. Or it divides by a
// given divisor.

// The divisor of a window's sum.
template <typename Axis>
__device__ float divisor(Axis down, Axis across, int oy, int ox, int given) {
  return static_cast<float>(given != 0 ? given : down.extent(oy) * across.extent(ox));
}

template <typename T, int N, typename Axis>
__device__ void mean(const T* x, T* y, int groups, int given, Axis down, Axis across) {
  const Place place(down.out, across.out, groups);
  if (!place.inside) return;
  const int begin = across.begin(place.x), end = across.end(place.x);
  const int top = down.begin(place.y), bottom = down.end(place.y);
  float sum[N] = {};
  for (int row = top; row < bottom; ++row) {
    for (int column = begin; column < end; ++column) {
      const size_t index = place.at(row, column, down.size, across.size, groups, N);
      const auto values = load<N>(x + index);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += static_cast<float>(values.item[k]);
    }
  }
  const bool empty = top >= bottom || begin >= end;
  const float area = empty ? 1.0f : divisor(down, across, place.y, place.x, given);
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.item[k] = static_cast<T>(sum[k] / area);
  store(y + place.at(place.y, place.x, down.out, across.out, groups, N), result);
}

template <typename T, int N, typename Axis>
__device__ void spread(const T* dy, T* dx, int groups, int given, Axis down, Axis across) {
  const Place place(down.size, across.size, groups);
  if (!place.inside) return;
  float sum[N] = {};
  for (int oy = down.first(place.y); oy <= down.last(place.y); ++oy) {
    for (int ox = across.first(place.x); ox <= across.last(place.x); ++ox) {
      const float area = divisor(down, across, oy, ox, given);
      const size_t index = place.at(oy, ox, down.out, across.out, groups, N);
      const auto values = load<N>(dy + index);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += static_cast<float>(values.item[k]) / area;
    }
  }
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.item[k] = static_cast<T>(sum[k]);
  store(dx + place.at(place.y, place.x, down.size, across.size, groups, N), result);
}

