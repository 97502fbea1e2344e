// The maximum of each window, its position, and the gradient; `pooling.cuh` defines windows.

constexpr int NO_TAP = 255;

// Finds the maximum of some vectors. The first of equal values wins and NaN beats all, as in
// PyTorch.
template <typename T, int N> struct Largest {
  float best[N];
  int winner[N];  // r * kernel_x + s of the maximum
  bool any = false;

  __device__ void take(const Vector<T, N>& values, int tap) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float value = static_cast<float>(values.item[k]);
      if (!any || value > best[k] || value != value) {
        best[k] = value;
        winner[k] = tap;
      }
    }
    any = true;
  }
  // A window without pixels has minus infinity, as in PyTorch, and no tap.
  template <bool TAPS> __device__ void write(T* y, unsigned char* taps) const {
    Vector<T, N> result;
    Vector<unsigned char, N> tap;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      result.item[k] = static_cast<T>(any ? best[k] : __int_as_float(0xff800000));
      tap.item[k] = any ? winner[k] : NO_TAP;
    }
    store(y, result);
    if (TAPS) store(taps, tap);
  }
};

template <typename T, int N, typename At>
__device__ void take_window(
    Largest<T, N>& largest, const T* x, Place place, At at, Strided down, Strided across) {
  for (int r = 0; r < down.kernel; ++r) {
    const int row = down.start(place.y) + r * down.dilation;
    if (row < 0 || row >= down.size) continue;
    for (int s = 0; s < across.kernel; ++s) {
      const int column = across.start(place.x) + s * across.dilation;
      if (column < 0 || column >= across.size) continue;
      largest.take(load<N>(x + at(row, column)), r * across.kernel + s);
    }
  }
}

// The same for small windows: all loads of a window are in flight together. A tap beyond the image
// loads its nearest pixel, and is not taken.
template <typename T, int N, int KERNEL_Y, int KERNEL_X, typename At>
__device__ void take_small_window(
    Largest<T, N>& largest, const T* x, Place place, At at, Strided down, Strided across) {
  Vector<T, N> values[KERNEL_Y][KERNEL_X];
  bool there[KERNEL_Y][KERNEL_X];
#pragma unroll
  for (int r = 0; r < KERNEL_Y; ++r) {
    const int row = down.start(place.y) + r * down.dilation;
    const int near_row = min(max(row, 0), down.size - 1);
#pragma unroll
    for (int s = 0; s < KERNEL_X; ++s) {
      const int column = across.start(place.x) + s * across.dilation;
      const int near_column = min(max(column, 0), across.size - 1);
      there[r][s] = row == near_row && column == near_column;
      values[r][s] = load<N>(x + at(near_row, near_column));
    }
  }
#pragma unroll
  for (int r = 0; r < KERNEL_Y; ++r)
#pragma unroll
    for (int s = 0; s < KERNEL_X; ++s)
      if (there[r][s]) largest.take(values[r][s], r * KERNEL_X + s);
}

// KERNEL_Y, KERNEL_X: of small windows, otherwise 0.
template <typename T, int N, int KERNEL_Y, int KERNEL_X, bool TAPS>
__device__ void pool(
    const T* x, T* y, unsigned char* taps, int groups, Strided down, Strided across) {
  const Place place(down.out, across.out, groups);
  if (!place.inside) return;
  const auto at = [&](int row, int column) {
    return place.at(row, column, down.size, across.size, groups, N);
  };
  Largest<T, N> largest;
  if constexpr (KERNEL_Y > 0) {
    take_small_window<T, N, KERNEL_Y, KERNEL_X>(largest, x, place, at, down, across);
  } else {
    take_window(largest, x, place, at, down, across);
  }
  const size_t index = place.at(place.y, place.x, down.out, across.out, groups, N);
  largest.template write<TAPS>(y + index, taps + index);
}

template <typename T, int N, int KERNEL_Y, int KERNEL_X>
__global__ void max_pool(const T* x, T* y, WINDOWS) {
  pool<T, N, KERNEL_Y, KERNEL_X, false>(x, y, nullptr, groups, DOWN(false), ACROSS(false));
}

template <typename T, int N, int KERNEL_Y, int KERNEL_X>
__global__ void max_pool_taps(const T* x, T* y, unsigned char* taps, WINDOWS) {
  pool<T, N, KERNEL_Y, KERNEL_X, true>(x, y, taps, groups, DOWN(false), ACROSS(false));
}

template <typename T, int N>
__global__ void max_pool_backward(const T* dy, const unsigned char* taps, T* dx, WINDOWS) {
  const Strided down DOWN(false), across ACROSS(false);
  const Place place(down.size, across.size, groups);
  if (!place.inside) return;
  float sum[N] = {};
  for (int oy = down.first(place.y); oy <= down.last(place.y); ++oy) {
    const int r = place.y - down.start(oy);
    if (r % down.dilation != 0) continue;
    for (int ox = across.first(place.x); ox <= across.last(place.x); ++ox) {
      const int s = place.x - across.start(ox);
      if (s % across.dilation != 0) continue;
      const int tap = r / down.dilation * across.kernel + s / across.dilation;
      const size_t index = place.at(oy, ox, down.out, across.out, groups, N);
      const auto winner = load<N>(taps + index);
      const auto gradient = load<N>(dy + index);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (winner.item[k] == tap) sum[k] += static_cast<float>(gradient.item[k]);
      }
    }
  }
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.item[k] = static_cast<T>(sum[k]);
  store(dx + place.at(place.y, place.x, down.size, across.size, groups, N), result);
}

// The same for small windows without dilation. The pixels between the starts of two consecutive
// windows are a tile: its pixel p < stride is tap p + j * stride of the window that starts j
// windows earlier. So all windows of a tile are known at compile time. Each is loaded once for the
// whole tile, and all loads are in flight together.
template <typename T, int N, int KERNEL_Y, int STRIDE_Y, int KERNEL_X, int STRIDE_X>
__global__ void max_pool_backward_tiles(const T* dy, const unsigned char* taps, T* dx, int groups,
                                        int size_y, int out_y, int before_y, int tiles_y,
                                        int size_x, int out_x, int before_x, int tiles_x) {
  constexpr int DOWN = (KERNEL_Y - 1) / STRIDE_Y + 1, ACROSS = (KERNEL_X - 1) / STRIDE_X + 1;
  const Place place(tiles_y, tiles_x, groups);
  if (!place.inside) return;
  Vector<T, N> gradient[DOWN][ACROSS] = {};
  Vector<unsigned char, N> winner[DOWN][ACROSS];
#pragma unroll
  for (int j = 0; j < DOWN; ++j) {
#pragma unroll
    for (int i = 0; i < ACROSS; ++i) {
      const int oy = place.y - j, ox = place.x - i;
#pragma unroll
      for (int k = 0; k < N; ++k) winner[j][i].item[k] = NO_TAP;
      if (oy < 0 || oy >= out_y || ox < 0 || ox >= out_x) continue;
      const size_t index = place.at(oy, ox, out_y, out_x, groups, N);
      winner[j][i] = load<N>(taps + index);
      gradient[j][i] = load<N>(dy + index);
    }
  }
#pragma unroll
  for (int pixel = 0; pixel < STRIDE_Y * STRIDE_X; ++pixel) {
    const int y = pixel / STRIDE_X, x = pixel % STRIDE_X;
    const int row = place.y * STRIDE_Y + y - before_y, column = place.x * STRIDE_X + x - before_x;
    if (row < 0 || row >= size_y || column < 0 || column >= size_x) continue;
    float sum[N] = {};
#pragma unroll
    for (int j = DOWN - 1; j >= 0; --j) {
#pragma unroll
      for (int i = ACROSS - 1; i >= 0; --i) {
        const int r = y + j * STRIDE_Y, s = x + i * STRIDE_X;
        if (r >= KERNEL_Y || s >= KERNEL_X) continue;
#pragma unroll
        for (int k = 0; k < N; ++k) {
          if (winner[j][i].item[k] == r * KERNEL_X + s)
            sum[k] += static_cast<float>(gradient[j][i].item[k]);
        }
      }
    }
    Vector<T, N> result;
#pragma unroll
    for (int k = 0; k < N; ++k) result.item[k] = static_cast<T>(sum[k]);
    store(dx + place.at(row, column, size_y, size_x, groups, N), result);
  }
}
