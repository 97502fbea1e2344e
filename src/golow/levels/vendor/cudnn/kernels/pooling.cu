// Pooling of images [n, h, w, c].
//
// An axis of an image has windows; window o covers pixels begin(o) up to end(o). The result is the
// largest or the mean over the windows of both axes. Each gradient is gathered: a pixel sums over
// the windows first(i) to last(i) that cover it, so nothing has to be added atomically, and every
// element of dx is written.
//
//   strided:   start(o) = o * stride - before; taps at start + r * dilation, clipped to the image
//   adaptive:  floor(o * size / out) to ceil((o + 1) * size / out)
//
// The mean divides by the clipped area; with the padding counted by the area clipped to the padded
// image (so a window that ceil_mode lets overhang counts less); or by a divisor that is given.
//
// A thread takes N channels of one pixel, or of a tile of pixels. blockIdx.x is a row of an image,
// and blockIdx.y a part of that row.

struct Strided {
  int size, out, kernel, stride, before, dilation;
  bool padding_counts;

  __device__ int start(int o) const { return o * stride - before; }
  __device__ int begin(int o) const { return max(start(o), 0); }
  __device__ int end(int o) const { return min(start(o) + kernel, size); }
  __device__ int extent(int o) const {
    return padding_counts ? min(start(o) + kernel, size + before) - start(o) : end(o) - begin(o);
  }
  __device__ int first(int i) const {
    const int reach = i + before - (kernel - 1) * dilation;
    return reach <= 0 ? 0 : (reach + stride - 1) / stride;
  }
  __device__ int last(int i) const { return min((i + before) / stride, out - 1); }
};

struct Adaptive {
  int size, out;

  __device__ int begin(int o) const { return o * size / out; }
  __device__ int end(int o) const { return ((o + 1) * size + out - 1) / out; }
  __device__ int extent(int o) const { return end(o) - begin(o); }
  __device__ int first(int i) const { return i * out / size; }
  __device__ int last(int i) const { return ((i + 1) * out + size - 1) / size - 1; }
};

// The place of a thread in an image of `height` rows; `groups` vectors make one pixel's channels.
struct Place {
  int y, x, group;
  size_t image;
  bool inside;

  __device__ Place(int height, int width, int groups) {
    const int index = blockIdx.y * blockDim.x + threadIdx.x;
    image = blockIdx.x / height;
    y = blockIdx.x % height;
    x = index / groups;
    group = index % groups;
    inside = x < width;
  }
  // Index of the first channel of this thread at a pixel of an image of that size.
  __device__ size_t at(int row, int column, int height, int width, int groups, int n) const {
    const size_t pixel = (image * height + row) * width + column;
    return (pixel * groups + group) * n;
  }
};

#define WINDOWS                                                                         \
  int groups, int size_y, int out_y, int kernel_y, int stride_y, int before_y,        \
    int dilation_y, int size_x, int out_x, int kernel_x, int stride_x, int before_x, \
    int dilation_x
#define DOWN(counts) {size_y, out_y, kernel_y, stride_y, before_y, dilation_y, counts}
#define ACROSS(counts) {size_x, out_x, kernel_x, stride_x, before_x, dilation_x, counts}

constexpr int NO_TAP = 255;

// The first of equal values wins and NaN beats all, as in PyTorch. taps: r * kernel_x + s of the
// winner.
template <typename T, int N, bool TAPS>
__device__ void largest(
    const T* x, T* y, unsigned char* taps, int groups, Strided down, Strided across) {
  const Place place(down.out, across.out, groups);
  if (!place.inside) return;
  float best[N];
  int winner[N];
  bool any = false;
  for (int r = 0; r < down.kernel; ++r) {
    const int row = down.start(place.y) + r * down.dilation;
    if (row < 0 || row >= down.size) continue;
    for (int s = 0; s < across.kernel; ++s) {
      const int column = across.start(place.x) + s * across.dilation;
      if (column < 0 || column >= across.size) continue;
      const size_t index = place.at(row, column, down.size, across.size, groups, N);
      const auto values = load<N>(x + index);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const float value = static_cast<float>(values.item[k]);
        if (!any || value > best[k] || value != value) {
          best[k] = value;
          winner[k] = r * across.kernel + s;
        }
      }
      any = true;
    }
  }
  Vector<T, N> result;
  Vector<unsigned char, N> tap;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    // A window without a pixel: minus infinity, as in PyTorch, and no tap.
    result.item[k] = static_cast<T>(any ? best[k] : __int_as_float(0xff800000));
    tap.item[k] = any ? winner[k] : NO_TAP;
  }
  const size_t index = place.at(place.y, place.x, down.out, across.out, groups, N);
  store(y + index, result);
  if (TAPS) store(taps + index, tap);
}

template <typename T, int N>
__global__ void max_pool(const T* x, T* y, WINDOWS) {
  largest<T, N, false>(x, y, nullptr, groups, DOWN(false), ACROSS(false));
}

template <typename T, int N>
__global__ void max_pool_taps(const T* x, T* y, unsigned char* taps, WINDOWS) {
  largest<T, N, true>(x, y, taps, groups, DOWN(false), ACROSS(false));
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

// The same for small windows without dilation. Pixels that lie between the starts of two windows
// are a tile: its pixel p of stride is tap p + j * stride of the window that is j before the last
// one to cover it. So all windows of a tile are known when this is compiled, each is loaded once
// for the whole tile, and all loads are under way together.
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

// What a window's sum is divided by.
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

template <typename T, int N>
__global__ void average_pool(const T* x, T* y, WINDOWS, int counts, int given) {
  mean<T, N, Strided>(x, y, groups, given, DOWN(counts != 0), ACROSS(counts != 0));
}

template <typename T, int N>
__global__ void average_pool_backward(const T* dy, T* dx, WINDOWS, int counts, int given) {
  spread<T, N, Strided>(dy, dx, groups, given, DOWN(counts != 0), ACROSS(counts != 0));
}

#define SIZES int groups, int size_y, int out_y, int size_x, int out_x

template <typename T, int N>
__global__ void adaptive_average_pool(const T* x, T* y, SIZES) {
  mean<T, N, Adaptive>(x, y, groups, 0, {size_y, out_y}, {size_x, out_x});
}

template <typename T, int N>
__global__ void adaptive_average_pool_backward(const T* dy, T* dx, SIZES) {
  spread<T, N, Adaptive>(dy, dx, groups, 0, {size_y, out_y}, {size_x, out_x});
}

// One value a channel of each image. Threads (x: vectors of channels, y: pixels in turn), whose
// sums meet in shared memory.
template <typename T, int N>
__global__ void global_average_pool(const T* x, T* y, int groups, int pixels) {
  extern __shared__ float sums[];
  const size_t image = blockIdx.x;
  const int group = blockIdx.y * blockDim.x + threadIdx.x;
  float* mine = sums + (threadIdx.y * blockDim.x + threadIdx.x) * N;
  float sum[N] = {};
  for (int pixel = threadIdx.y; group < groups && pixel < pixels; pixel += blockDim.y) {
    const auto values = load<N>(x + ((image * pixels + pixel) * groups + group) * N);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += static_cast<float>(values.item[k]);
  }
  for (int k = 0; k < N; ++k) mine[k] = sum[k];
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
    for (int k = 0; k < N; ++k) mine[k] += mine[half * blockDim.x * N + k];
  }
  if (threadIdx.y != 0 || group >= groups) return;
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result.item[k] = static_cast<T>(mine[k] / pixels);
  store(y + (image * groups + group) * N, result);
}

template <typename T, int N>
__global__ void global_average_pool_backward(const T* dy, T* dx, int groups, int pixels) {
  const size_t image = blockIdx.x;
  const int index = blockIdx.y * blockDim.x + threadIdx.x;
  if (index / groups >= pixels) return;
  const auto values = load<N>(dy + (image * groups + index % groups) * N);
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    result.item[k] = static_cast<T>(static_cast<float>(values.item[k]) / pixels);
  }
  store(dx + (image * pixels * groups + index) * N, result);
}
