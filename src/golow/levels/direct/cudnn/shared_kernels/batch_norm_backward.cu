// The gradients of batch norm over images [rows, channels] in training, from the gradient of
// y = clip(n * scale + shift + residual) with n = (x - mean) * r:
//
//   g = the gradient of y where y is not clipped, else 0
//   dshift = sum(g),  dscale = sum(g * n),  dresidual = g
//   dx = scale * r * (g - (dshift + n * dscale) / rows)
//
// The strategies are those of batch_norm.cu: at once by clusters, or in parts by three kernels.
//
// y itself is not read. If nothing was added to it, where it was clipped follows from x by the same
// operations as in batch_norm.cu; otherwise forward has left a bit for each element. The gradient
// of y may come as two tensors, whose sum is rounded to storage as if it had been stored; the second
// may have every other pixel alone. If
// dresidual is wanted, the first read writes it, and the second reads it instead of those two.
//
// Absent operands are null: second, mask, scale (1), shift (0), dresidual. A missing limit is NaN.
// No pointer to images is __restrict__: dx may alias either gradient or x, dresidual either
// gradient, since a thread reads what it overwrites.
//
// The code before this file may define ACTIVATED_GRADIENT, the gradient of an activation that does
// not clip, from the gradient of its result and its argument n * scale + shift, which is computed
// again. There is no dresidual then.
//
// It may define GRADIENT_PITCH and SECOND_PITCH, the elements from one row to the next of gradients
// that are ranges of wider images. Nothing aliases those.

#ifdef GRADIENT_PITCH
#define GRADIENT_PLACE (adjacent ? place : (size_t)row * GRADIENT_PITCH + channel)
#else
#define GRADIENT_PLACE place
#endif
#ifndef SECOND_PITCH
#define SECOND_PITCH channels
#endif
#ifndef ACTIVATED_GRADIENT
#define ACTIVATED_GRADIENT(gradient, value) (gradient)
#endif

// Nothing was clipped; compute y again; read the bits; an activation that does not clip.
enum Mask { NONE, AGAIN, BITS, FUNCTION };

struct Sums { float shift, scale; };

// The row that the second gradient has for a row of the first; -1 if it has none.
struct AllPixels {
  __device__ static int row(int row) { return row; }
};
template <int HEIGHT, int WIDTH, int DOWN, int ACROSS> struct SomePixels {
  __device__ static int row(int row) {
    constexpr int ROWS = (HEIGHT + DOWN - 1) / DOWN, COLUMNS = (WIDTH + ACROSS - 1) / ACROSS;
    const int line = row / WIDTH, column = row % WIDTH, image = line / HEIGHT, y = line % HEIGHT;
    if (y % DOWN || column % ACROSS) return -1;
    return (image * ROWS + y / DOWN) * COLUMNS + column / ACROSS;
  }
};

template <typename T, int V> struct Row {
  Vector<T, V> gradient, second, x;
  unsigned bits;
};

// What a thread reads, and the factors of its channels: y = (x - center) * factor + offset.
template <typename T, int V, Mask MASK, typename Second> struct Images {
  const T *gradient, *second;
  const unsigned char* mask;
  const T* x;
  bool adjacent = false;  // the gradient's rows follow one another, whatever its pitch was
  float low, high;
  float center[V] = {}, factor[V] = {}, offset[V] = {};

  __device__ Images(const T* gradient, const T* second, const unsigned char* mask, const T* x,
                    float low, float high)
      : gradient(gradient), second(second), mask(mask), x(x),
        // A clipped element of y is stored as the limit, rounded to storage.
        low(convert<float>(convert<T>(low))), high(convert<float>(convert<T>(high))) {}

  __device__ void know(const float* scale, const float* shift, const float* mean,
                       const float* inverse_deviation, int channel) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float inverse = inverse_deviation[channel + i];
      center[i] = mean[channel + i];
      factor[i] = scale ? inverse * scale[channel + i] : inverse;
      offset[i] = shift ? shift[channel + i] : 0.f;
    }
  }

  __device__ Row<T, V> read(int row, int channels, int channel) const {
    const size_t place = (size_t)row * channels + channel;
    const int other = Second::row(row);
    Row<T, V> found = {};
    found.gradient = load<V>(gradient + GRADIENT_PLACE);
    if (second && other >= 0)
      found.second = load<V>(second + (size_t)other * SECOND_PITCH + channel);
    found.x = load<V>(x + place);
    if constexpr (MASK == BITS) found.bits = mask[place / V];
    return found;
  }

  __device__ void unclipped(const Row<T, V>& row, float (&g)[V]) const {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      g[i] = convert<float>(row.gradient.item[i]);
      if (second) g[i] = convert<float>(convert<T>(g[i] + convert<float>(row.second.item[i])));
      if constexpr (MASK == BITS) g[i] = row.bits >> i & 1 ? g[i] : 0.f;
      if constexpr (MASK == AGAIN || MASK == FUNCTION) {
        const float y = normalized(convert<float>(row.x.item[i]), center[i], factor[i], offset[i]);
        if constexpr (MASK == FUNCTION)
          g[i] = ACTIVATED_GRADIENT(g[i], y);
        else
          g[i] = passes(convert<float>(convert<T>(y)), low, high) ? g[i] : 0.f;
      }
    }
  }
};

// ------------------------------------------------------------ sums

// Adds the values that the threads of a block have for V channels. Thread t < X * V returns the
// sums of one channel; the result of other threads is meaningless.
template <int V, int X, int Y>
__device__ Sums joined(const float (&shift)[V], const float (&scale)[V]) {
  constexpr int WARPS = X * Y / 32, TILE = X * V;
  __shared__ float shifts[WARPS][TILE], scales[WARPS][TILE];
  const int thread = threadIdx.y * X + threadIdx.x, warp = thread / 32;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const float of_shift = sum_of_lanes(shift[i]), of_scale = sum_of_lanes(scale[i]);
    if (thread % 32 < X) {
      shifts[warp][threadIdx.x * V + i] = of_shift;
      scales[warp][threadIdx.x * V + i] = of_scale;
    }
  }
  __syncthreads();
  if (thread >= TILE) return {};
  Sums sums = {};
#pragma unroll
  for (int i = 0; i < WARPS; ++i) {
    sums.shift += shifts[i][thread];
    sums.scale += scales[i][thread];
  }
  return sums;
}

template <typename T, int V, int X, int Y, Mask MASK, typename Second>
__device__ Sums sums_of_block(const Images<T, V, MASK, Second>& images, T* dresidual,
                              const float* inverse_deviation, const Walk& at, int channels) {
  float shift[V] = {}, scale[V] = {};
  // One row at a time: the registers for two would cost more in blocks than they save in waiting.
  for (int row = at.first; at.channel < channels && row < at.last; row += at.step) {
    const size_t place = (size_t)row * channels + at.channel;
    const Row<T, V> read = images.read(row, channels, at.channel);
    float g[V];
    images.unclipped(read, g);
    Vector<T, V> stored;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      shift[i] += g[i];
      scale[i] += g[i] * (convert<float>(read.x.item[i]) - images.center[i]);
      stored.item[i] = convert<T>(g[i]);
    }
    if (dresidual) store<V>(dresidual + place, stored);
  }
  Sums sums = joined<V, X, Y>(shift, scale);
  const int thread = threadIdx.y * X + threadIdx.x;
  const int channel = at.channel - (int)threadIdx.x * V + thread;
  if (thread < X * V && channel < channels) sums.scale *= inverse_deviation[channel];
  return sums;
}

// ------------------------------------------------------------ the result

// dx = factor * g - constant - slope * (x - center)
template <int V> struct Affine {
  float constant[V], slope[V];

  __device__ void set(int i, Sums sums, float factor, float inverse_deviation, int rows) {
    constant[i] = factor * (sums.shift / rows);
    slope[i] = factor * inverse_deviation * (sums.scale / rows);
  }
};

template <typename T, int V, Mask MASK, typename Second>
__device__ void apply(Images<T, V, MASK, Second>& images, T* dx, const T* dresidual, const Walk& at,
                      int channels, const Affine<V>& by) {
  if (dresidual) {  // g went through the clip already; applying it again changes nothing
    images.gradient = dresidual;
    images.adjacent = true;
    images.second = nullptr;
  }
  for (int row = at.first; row < at.last; row += at.step) {
    const size_t place = (size_t)row * channels + at.channel;
    const Row<T, V> read = images.read(row, channels, at.channel);
    float g[V];
    images.unclipped(read, g);
    Vector<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float distance = convert<float>(read.x.item[i]) - images.center[i];
      result.item[i] =
          convert<T>(images.factor[i] * g[i] - by.constant[i] - by.slope[i] * distance);
    }
    store<V>(dx + place, result);
  }
}

#define OPERANDS                                                                               \
  const T *gradient, const T *second, const unsigned char *mask, const T *x,                   \
      const float *scale, const float *shift, const float *mean,                               \
      const float *inverse_deviation, T *dx, float *dscale, float *dshift, T *dresidual,       \
      float *scratch, int rows, int channels

template <typename T, Mask MASK, typename Second, int V, int X, int Y, int CLUSTER>
__global__ void CLUSTER_OF(CLUSTER) __launch_bounds__(X * Y)
    at_once(OPERANDS, float low, float high) {
  constexpr int TILE = X * V;
  __shared__ float part[2][TILE], whole[2][TILE];
  const int rank = blockIdx.x % CLUSTER, tile = blockIdx.x / CLUSTER;
  const int thread = threadIdx.y * X + threadIdx.x, channel = tile * TILE + thread;
  const Walk at = walk<V>(rank, CLUSTER, tile, rows);
  Images<T, V, MASK, Second> images(gradient, second, mask, x, low, high);
  if (at.channel < channels) images.know(scale, shift, mean, inverse_deviation, at.channel);
  Sums sums = sums_of_block<T, V, X, Y>(images, dresidual, inverse_deviation, at, channels);
  if constexpr (CLUSTER > 1) {
    if (thread < TILE) {
      part[0][thread] = sums.shift;
      part[1][thread] = sums.scale;
    }
    CLUSTER_ARRIVE();
    CLUSTER_WAIT();
    if (thread < TILE) {
      sums = {};
#pragma unroll
      for (int i = 0; i < CLUSTER; ++i) {
        sums.shift += *OF_BLOCK(&part[0][thread], i);
        sums.scale += *OF_BLOCK(&part[1][thread], i);
      }
    }
    CLUSTER_ARRIVE();  // no block may exit while another reads its shared memory
  }
  if (thread < TILE && channel < channels) {
    whole[0][thread] = sums.shift;
    whole[1][thread] = sums.scale;
    if (rank == 0) {
      dshift[channel] = sums.shift;
      dscale[channel] = sums.scale;
    }
  }
  __syncthreads();
  if (at.channel < channels) {
    Affine<V> by;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int place = threadIdx.x * V + i;
      by.set(i, {whole[0][place], whole[1][place]}, images.factor[i],
             inverse_deviation[at.channel + i], rows);
    }
    apply(images, dx, dresidual, at, channels, by);
  }
  if constexpr (CLUSTER > 1) CLUSTER_WAIT();
}

// ------------------------------------------------------------ in parts

// scratch is [parts, 2, channels]: the parts of dshift and of dscale.
template <typename T, Mask MASK, typename Second, int V, int X, int Y>
__global__ void __launch_bounds__(X * Y, 4) sums_of_parts(OPERANDS, float low, float high) {
  const int thread = threadIdx.y * X + threadIdx.x, channel = blockIdx.y * X * V + thread;
  const Walk at = walk<V>(blockIdx.x, gridDim.x, blockIdx.y, rows);
  Images<T, V, MASK, Second> images(gradient, second, mask, x, low, high);
  if (at.channel < channels) images.know(scale, shift, mean, inverse_deviation, at.channel);
  const Sums own = sums_of_block<T, V, X, Y>(images, dresidual, inverse_deviation, at, channels);
  if (thread >= X * V || channel >= channels) return;
  scratch[(size_t)blockIdx.x * 2 * channels + channel] = own.shift;
  scratch[((size_t)blockIdx.x * 2 + 1) * channels + channel] = own.scale;
}

// A block has many threads for few channels, so all parts load at once.
template <typename T, int X, int Y>
__global__ void __launch_bounds__(X * Y) join_parts(OPERANDS, int parts) {
  const int channel = blockIdx.x * X + threadIdx.x;
  Sums own = {};
#pragma unroll 8
  for (int i = threadIdx.y; i < parts && channel < channels; i += Y) {
    own.shift += scratch[(size_t)i * 2 * channels + channel];
    own.scale += scratch[((size_t)i * 2 + 1) * channels + channel];
  }
  const Sums all = joined<1, X, Y>({own.shift}, {own.scale});
  if (threadIdx.y > 0 || channel >= channels) return;
  dshift[channel] = all.shift;
  dscale[channel] = all.scale;
}

template <typename T, Mask MASK, typename Second, int V>
__global__ void differentiate(OPERANDS, float low, float high) {
  const Walk at = walk<V>(blockIdx.x, gridDim.x, blockIdx.y, rows);
  if (at.channel >= channels) return;
  Images<T, V, MASK, Second> images(gradient, second, mask, x, low, high);
  images.know(scale, shift, mean, inverse_deviation, at.channel);
  Affine<V> by;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int channel = at.channel + i;
    by.set(i, {dshift[channel], dscale[channel]}, images.factor[i], inverse_deviation[channel],
           rows);
  }
  apply(images, dx, dresidual, at, channels, by);
}
