// Depthwise convolution: M filters for each channel of x, filter k reads channel k / M. Images are
// NHWC, weights [K, R, S, 1] with K = C * M.
//
//   y[n, p, q, k]  = clip(bias[k] + sum over r, s of
//                         x[n, p * stride - top + r * dilation, ..., k / M] * w[k, r, s])
//   dx[n, h, w, c] = sum over the M filters k of channel c and the taps r, s that read the pixel:
//                         dy[n, (h + top - r * dilation) / stride, ..., k] * w[k, r, s]
//   dw[k, r, s]    = sum over n, p, q of
//                         dy[n, p, q, k] * x[n, p * stride - top + r * dilation, ..., k / M]
//
// With stride 1 and M = 1, dx is a depthwise convolution of dy with the reversed taps: FLIPPED.
//
// Memory bandwidth limits all of this. A thread has a vector of V channels and a strip of adjacent
// pixels in a row of y. It loads each pixel of x under them once for every row of taps; or, rolling,
// it goes down the image, loads each row of x once, and has the sums of all rows of y that read it;
// or its block loads a tile of x at once. All add in the same order. A block is X vectors wide. The window's sizes are template arguments,
// so that its loops are unrolled. The code before this file may define ACTIVATED, a function of the
// clipped result, and X_PITCH and Y_PITCH, the elements from one pixel to the next of images that are
// ranges of wider ones.

template <int ROWS, int COLUMNS, int STRIDE_Y, int STRIDE_X, int DILATION_Y, int DILATION_X>
struct Window {
  static constexpr int R = ROWS, S = COLUMNS, TAPS = ROWS * COLUMNS;
  static constexpr int stride_y = STRIDE_Y, stride_x = STRIDE_X;
  static constexpr int dilation_y = DILATION_Y, dilation_x = DILATION_X;
};

#ifndef X_PITCH
#define X_PITCH at.channels
#endif
#ifndef Y_PITCH
#define Y_PITCH at.filters
#endif
#ifndef ACTIVATED
#define ACTIVATED(value) (value)
#endif

struct Shape { int images, height, width, channels, filters, out_height, out_width, top, left; };

#define SHAPE_ARGUMENTS                                                                            \
  int images, int height, int width, int channels, int filters, int out_height, int out_width,     \
      int top, int left
#define SHAPE Shape{ images, height, width, channels, filters, out_height, out_width, top, left }

// Where a strip begins: its row of y, counted over all images, and its column.
struct Strip { int line, image, p, q; };

template <int STRIP> __device__ Strip strip_at(long long i, const Shape& at) {
  const int strips = (at.out_width + STRIP - 1) / STRIP, line = i / strips;
  return {line, line / at.out_height, line % at.out_height, (int)(i % strips) * STRIP};
}

template <int STRIP> __device__ long long number_of_strips(const Shape& at) {
  return (long long)at.images * at.out_height * ((at.out_width + STRIP - 1) / STRIP);
}

// Calls meet(j, s, values) for each pixel j of the strip and each tap s of this row of taps that
// is inside the image; values are V channels of x there. Each pixel is loaded once.
template <typename P, int V, int STRIP, typename T, typename Meet>
__device__ inline void meet_row(const T* row, int left, const Shape& at, Meet meet) {
  constexpr int SPAN = (STRIP - 1) * P::stride_x + (P::S - 1) * P::dilation_x + 1;
#pragma unroll
  for (int i = 0; i < SPAN; ++i) {
    if (left + i < 0 || left + i >= at.width) continue;
    const Vector<T, V> vector = load<V>(row + (ptrdiff_t)(left + i) * X_PITCH);
    float values[V];
#pragma unroll
    for (int v = 0; v < V; ++v) values[v] = convert<float>(vector.item[v]);
#pragma unroll
    for (int j = 0; j < STRIP; ++j) {
#pragma unroll
      for (int s = 0; s < P::S; ++s)
        if (j * P::stride_x + s * P::dilation_x == i) meet(j, s, values);
    }
  }
}

// The block's filters in shared memory as [taps][X * V]. Several loads are under way at a time.
template <typename P, int TILE, bool FLIPPED, typename W>
__device__ void load_filter(float (*filter)[TILE], const W* weight, int filters) {
  constexpr int AT_ONCE = 8;
  const int threads = blockDim.x * blockDim.y, first = blockIdx.y * TILE;
  const int all = min(TILE, filters - first) * P::TAPS;
  for (int start = threadIdx.y * blockDim.x + threadIdx.x; start < all; start += AT_ONCE * threads) {
    float value[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = start + j * threads;
      value[j] = i < all ? convert<float>(weight[(size_t)first * P::TAPS + i]) : 0.f;
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = start + j * threads, k = i / P::TAPS, tap = i % P::TAPS;
      if (i < all) filter[FLIPPED ? P::TAPS - 1 - tap : tap][k] = value[j];
    }
  }
  __syncthreads();
}

// Writes V filters of a strip of the row `line` of y, which is counted over all images.
template <int V, int STRIP, typename T>
__device__ inline void write_strip(T* y, const float (&sum)[STRIP][V], int line, int q, int k,
                                   const Shape& at, float low, float high) {
#pragma unroll
  for (int j = 0; j < STRIP; ++j) {
    if (q + j >= at.out_width) continue;
    Vector<T, V> vector;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float value = clipped(sum[j][v], low, high);
      vector.item[v] = convert<T>(ACTIVATED(value));
    }
    store<V>(y + ((size_t)line * at.out_width + q + j) * Y_PITCH + k, vector);
  }
}

template <typename P, int V, int X, int M, int STRIP, bool FLIPPED, typename T, typename W>
__device__ void slide(const T* x, const W* weight, const float* bias, T* y, const Shape& at,
                      float low, float high) {
  __shared__ float filter[P::TAPS][X * V];
  load_filter<P, X * V, FLIPPED>(filter, weight, at.filters);
  const int own = threadIdx.x * V, k = blockIdx.y * X * V + own;
  if (k >= at.filters) return;
  float start[V];
#pragma unroll
  for (int v = 0; v < V; ++v) start[v] = bias ? bias[k + v] : 0.f;
  const long long all = number_of_strips<STRIP>(at), step = (long long)gridDim.x * blockDim.y;
  for (long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y; i < all; i += step) {
    const Strip strip = strip_at<STRIP>(i, at);
    float sum[STRIP][V];
#pragma unroll
    for (int j = 0; j < STRIP; ++j)
#pragma unroll
      for (int v = 0; v < V; ++v) sum[j][v] = start[v];
#pragma unroll
    for (int r = 0; r < P::R; ++r) {
      const int h = strip.p * P::stride_y - at.top + r * P::dilation_y;
      if (h < 0 || h >= at.height) continue;
      const T* row = x + ((size_t)strip.image * at.height + h) * at.width * X_PITCH + k / M;
      meet_row<P, V, STRIP>(row, strip.q * P::stride_x - at.left, at,
                            [&](int j, int s, const float (&values)[V]) {
#pragma unroll
                              for (int v = 0; v < V; ++v)
                                sum[j][v] += values[v] * filter[r * P::S + s][own + v];
                            });
    }
    write_strip<V, STRIP>(y, sum, strip.line, strip.q, k, at, low, high);
  }
}

template <typename T, typename W, typename P, int V, int X, int M, int STRIP>
__global__ void __launch_bounds__(256)
    forward(const T* x, const W* weight, const float* bias, T* y, SHAPE_ARGUMENTS, float low,
            float high) {
  slide<P, V, X, M, STRIP, false>(x, weight, bias, y, SHAPE, low, high);
}

// A thread computes its strip of `run` rows of y, one below the other. In round i it loads
// P::stride_y rows of x and adds them to the sums of OPEN rows of y: that of slot k is i - (OPEN - 1)
// + k, of which tap (OPEN - 1 - k) * stride_y + d reads row d. Then that of slot 0 has all its taps.
template <typename T, typename W, typename P, int V, int X, int M, int STRIP>
__global__ void __launch_bounds__(256)
    forward_rolling(const T* x, const W* weight, const float* bias, T* y, SHAPE_ARGUMENTS, float low,
                    float high, int run) {
  constexpr int OPEN = (P::R + P::stride_y - 1) / P::stride_y;
  const Shape at = SHAPE;
  __shared__ float filter[P::TAPS][X * V];
  load_filter<P, X * V, false>(filter, weight, at.filters);
  const int own = threadIdx.x * V, k = blockIdx.y * X * V + own;
  if (k >= at.filters) return;
  float start[V];
#pragma unroll
  for (int v = 0; v < V; ++v) start[v] = bias ? bias[k + v] : 0.f;
  const int strips = (at.out_width + STRIP - 1) / STRIP, runs = (at.out_height + run - 1) / run;
  const long long all = (long long)at.images * runs * strips;
  const long long step = (long long)gridDim.x * blockDim.y;
  for (long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y; i < all; i += step) {
    const int q = (int)(i % strips) * STRIP, image = (int)(i / strips / runs);
    const int p = (int)(i / strips % runs) * run, rows = min(run, at.out_height - p);
    const T* pixels = x + (size_t)image * at.height * at.width * X_PITCH + k / M;
    float sum[OPEN][STRIP][V];
#pragma unroll
    for (int slot = 0; slot < OPEN; ++slot)
#pragma unroll
      for (int j = 0; j < STRIP; ++j)
#pragma unroll
        for (int v = 0; v < V; ++v) sum[slot][j][v] = start[v];
    for (int round = 0; round < rows + OPEN - 1; ++round) {
#pragma unroll
      for (int d = 0; d < P::stride_y; ++d) {
        const int h = (p + round) * P::stride_y + d - at.top;
        const bool read = round * P::stride_y + d < (rows - 1) * P::stride_y + P::R;
        if (!read || h < 0 || h >= at.height) continue;
        meet_row<P, V, STRIP>(pixels + (size_t)h * at.width * X_PITCH,
                              q * P::stride_x - at.left, at,
                              [&](int j, int s, const float (&values)[V]) {
#pragma unroll
                                for (int slot = 0; slot < OPEN; ++slot) {
                                  const int r = (OPEN - 1 - slot) * P::stride_y + d;
                                  if (r >= P::R) continue;
#pragma unroll
                                  for (int v = 0; v < V; ++v)
                                    sum[slot][j][v] += values[v] * filter[r * P::S + s][own + v];
                                }
                              });
      }
      const int done = round - (OPEN - 1);
      if (done >= 0) {
        const int line = image * at.out_height + p + done;
        write_strip<V, STRIP>(y, sum[0], line, q, k, at, low, high);
      }
#pragma unroll
      for (int slot = 0; slot < OPEN; ++slot)
#pragma unroll
        for (int j = 0; j < STRIP; ++j)
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum[slot][j][v] = slot + 1 < OPEN ? sum[slot + 1 < OPEN ? slot + 1 : slot][j][v] : start[v];
    }
  }
}

// M = 1. A block computes ROWS rows of STRIPS strips side by side, from a tile of x in shared memory
// that it loads at once: for small images the time of a load counts, not the number of bytes. A
// pixel of the tile has a gap behind it, so that strips and rows lie in different banks.
template <typename T, typename W, typename P, int V, int X, int M, int STRIP, int ROWS, int STRIPS>
__global__ void __launch_bounds__(X * ROWS * STRIPS)
    forward_in_tiles(const T* __restrict__ x, const W* __restrict__ weight, const float* bias,
                     T* __restrict__ y, SHAPE_ARGUMENTS, float low, float high) {
  constexpr int AT_ONCE = 8, THREADS = X * ROWS * STRIPS, PIXEL = X * V + 16 / sizeof(T);
  constexpr int HEIGHT = (ROWS - 1) * P::stride_y + (P::R - 1) * P::dilation_y + 1;
  constexpr int WIDTH = (STRIPS * STRIP - 1) * P::stride_x + (P::S - 1) * P::dilation_x + 1;
  constexpr int SPAN = (STRIP - 1) * P::stride_x + (P::S - 1) * P::dilation_x + 1;
  const Shape at = SHAPE;
  alignas(16) __shared__ T tile[HEIGHT * WIDTH * PIXEL];
  __shared__ float filter[P::TAPS][X * V];
  const int across = (at.out_width + STRIPS * STRIP - 1) / (STRIPS * STRIP);
  const int down = (at.out_height + ROWS - 1) / ROWS;
  const int image = blockIdx.x / (across * down);
  const int p = blockIdx.x / across % down * ROWS, q = blockIdx.x % across * STRIPS * STRIP;
  const int above = p * P::stride_y - at.top, before = q * P::stride_x - at.left;
  const T* pixels = x + (size_t)image * at.height * at.width * X_PITCH;
  for (int start = threadIdx.y * X + threadIdx.x; start < HEIGHT * WIDTH * X;
       start += AT_ONCE * THREADS) {
    Vector<T, V> held[AT_ONCE];
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = start + j * THREADS, pixel = i / X;
      const int h = above + pixel / WIDTH, w = before + pixel % WIDTH;
      const int c = (blockIdx.y * X + i % X) * V;
      const bool inside = i < HEIGHT * WIDTH * X && c < at.channels && h >= 0 && h < at.height &&
                          w >= 0 && w < at.width;
#pragma unroll
      for (int v = 0; v < V; ++v) held[j].item[v] = convert<T>(0.f);
      if (inside) held[j] = load<V>(pixels + ((size_t)h * at.width + w) * X_PITCH + c);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) {
      const int i = start + j * THREADS;
      if (i < HEIGHT * WIDTH * X) store<V>(tile + i / X * PIXEL + i % X * V, held[j]);
    }
  }
  load_filter<P, X * V, false>(filter, weight, at.filters);
  const int own = threadIdx.x * V, k = blockIdx.y * X * V + own;
  const int row = threadIdx.y / STRIPS, column = threadIdx.y % STRIPS * STRIP;
  if (k >= at.filters || p + row >= at.out_height || q + column >= at.out_width) return;
  float sum[STRIP][V];
#pragma unroll
  for (int j = 0; j < STRIP; ++j)
#pragma unroll
    for (int v = 0; v < V; ++v) sum[j][v] = bias ? bias[k + v] : 0.f;
#pragma unroll
  for (int r = 0; r < P::R; ++r) {
    const int first = (row * P::stride_y + r * P::dilation_y) * WIDTH + column * P::stride_x;
#pragma unroll
    for (int i = 0; i < SPAN; ++i) {
      const Vector<T, V> vector = load<V>(tile + (first + i) * PIXEL + own);
#pragma unroll
      for (int j = 0; j < STRIP; ++j)
#pragma unroll
        for (int s = 0; s < P::S; ++s) {
          if (j * P::stride_x + s * P::dilation_x != i) continue;
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum[j][v] += convert<float>(vector.item[v]) * filter[r * P::S + s][own + v];
        }
    }
  }
  write_strip<V, STRIP>(y, sum, image * at.out_height + p + row, q + column, k, at, low, high);
}

// Stride 1 and M = 1; the shape is that of the convolution that turns dy into dx.
template <typename T, typename W, typename P, int V, int X, int M, int STRIP>
__global__ void __launch_bounds__(256)
    backward_data_by_sliding(const T* dy, const W* weight, T* dx, SHAPE_ARGUMENTS, float low,
                             float high) {
  slide<P, V, X, M, STRIP, true>(dy, weight, nullptr, dx, SHAPE, low, high);
}

// The row or column of y whose window reads `position` with this tap; -1 if there is none.
template <int STRIDE> __device__ int met(int position, int tap_offset, int size) {
  const int distance = position - tap_offset;
  if (distance < 0 || distance % STRIDE) return -1;
  return distance / STRIDE < size ? distance / STRIDE : -1;
}

// Any stride and M; one pixel of x at a time. V = 1 unless M = 1.
template <typename T, typename W, typename P, int V, int X, int M>
__global__ void __launch_bounds__(256)
    backward_data(const T* dy, const W* weight, T* dx, SHAPE_ARGUMENTS) {
  const Shape at = SHAPE;
  __shared__ float filter[P::TAPS][X * V * M];
  load_filter<P, X * V * M, false>(filter, weight, at.filters);
  const int own = threadIdx.x * V * M, c = (blockIdx.y * X + threadIdx.x) * V;
  if (c >= at.channels) return;
  const long long all = (long long)at.images * at.height * at.width;
  const long long step = (long long)gridDim.x * blockDim.y;
  for (long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y; i < all; i += step) {
    const int w = i % at.width, line = i / at.width, n = line / at.height, h = line % at.height;
    float sum[V] = {};
#pragma unroll
    for (int r = 0; r < P::R; ++r) {
      const int p = met<P::stride_y>(h + at.top, r * P::dilation_y, at.out_height);
      if (p < 0) continue;
#pragma unroll
      for (int s = 0; s < P::S; ++s) {
        const int q = met<P::stride_x>(w + at.left, s * P::dilation_x, at.out_width);
        if (q < 0) continue;
        const T* gradient =
            dy + (((size_t)n * at.out_height + p) * at.out_width + q) * Y_PITCH + c * M;
#pragma unroll
        for (int m = 0; m < M; ++m) {
          const Vector<T, V> vector = load<V>(gradient + m);
#pragma unroll
          for (int v = 0; v < V; ++v)
            sum[v] += convert<float>(vector.item[v]) * filter[r * P::S + s][own + v * M + m];
        }
      }
    }
    Vector<T, V> vector;
#pragma unroll
    for (int v = 0; v < V; ++v) vector.item[v] = convert<T>(sum[v]);
    store<V>(dx + (size_t)i * X_PITCH + c, vector);
  }
}

// A block has 32 vectors of filters. The parts (blockIdx.x) and a block's 8 warps take the strips
// of y in turn. A thread keeps the sums of all taps.
template <typename T, typename P, int V, int M, int STRIP>
__global__ void __launch_bounds__(256)
    backward_weight(const T* dy, const T* x, float* dw, float* scratch, SHAPE_ARGUMENTS) {
  const Shape at = SHAPE;
  __shared__ float sums[8][32 * V];
  const int thread = threadIdx.y * 32 + threadIdx.x, first = blockIdx.y * 32 * V;
  const int k = first + threadIdx.x * V;
  float sum[P::TAPS][V] = {};
  const long long all = k < at.filters ? number_of_strips<STRIP>(at) : 0;
  const long long step = (long long)gridDim.x * 8;
  for (long long i = (long long)blockIdx.x * 8 + threadIdx.y; i < all; i += step) {
    const Strip strip = strip_at<STRIP>(i, at);
    float gradient[STRIP][V] = {};
#pragma unroll
    for (int j = 0; j < STRIP; ++j) {
      if (strip.q + j >= at.out_width) continue;
      const Vector<T, V> vector =
          load<V>(dy + ((size_t)strip.line * at.out_width + strip.q + j) * Y_PITCH + k);
#pragma unroll
      for (int v = 0; v < V; ++v) gradient[j][v] = convert<float>(vector.item[v]);
    }
#pragma unroll
    for (int r = 0; r < P::R; ++r) {
      const int h = strip.p * P::stride_y - at.top + r * P::dilation_y;
      if (h < 0 || h >= at.height) continue;
      const T* row = x + ((size_t)strip.image * at.height + h) * at.width * X_PITCH + k / M;
      meet_row<P, V, STRIP>(row, strip.q * P::stride_x - at.left, at,
                            [&](int j, int s, const float (&values)[V]) {
#pragma unroll
                              for (int v = 0; v < V; ++v)
                                sum[r * P::S + s][v] += values[v] * gradient[j][v];
                            });
    }
  }
  float* target = gridDim.x == 1 ? dw : scratch + (size_t)blockIdx.x * at.filters * P::TAPS;
#pragma unroll
  for (int tap = 0; tap < P::TAPS; ++tap) {
#pragma unroll
    for (int v = 0; v < V; ++v) sums[threadIdx.y][threadIdx.x * V + v] = sum[tap][v];
    __syncthreads();
    if (thread < 32 * V && first + thread < at.filters) {
      float whole = 0.f;
      for (int warp = 0; warp < 8; ++warp) whole += sums[warp][thread];
      target[(size_t)(first + thread) * P::TAPS + tap] = whole;
    }
    __syncthreads();
  }
}
