// The gradients of batch norm over images [rows, channels] in training, from the gradient of
// y = clip(n * scale + shift + residual) with n = (x - mean) * r:
//
//   g = the gradient of y where y is not clipped, else 0
//   dshift = sum(g),  dscale = sum(g * n),  dresidual = g
//   dx = scale * r * (g - (dshift + n * dscale) / rows)
//
// The strategies are those of batch_norm.cu: at once by clusters, or in parts by three kernels.
//
// Absent operands are null: y (nothing was clipped), scale (1), dresidual. A limit that does not
// exist is NaN, since no comparison with it holds. No pointer to images is __restrict__: dx and
// dresidual may take the place of the gradient, of y or of x, since a thread reads what it
// overwrites.

constexpr int AHEAD = 2;  // rows that a thread has under way

struct Sums { float shift, scale; };

template <typename T> struct Images {
  const T *gradient, *y, *x;
  float low, high;

  __device__ Images(const T* gradient, const T* y, const T* x, float low, float high)
      : gradient(gradient), y(y), x(x),
        // What was clipped stands in y as the limit in storage.
        low(convert<float>(convert<T>(low))), high(convert<float>(convert<T>(high))) {}

  template <int V> __device__ void read(size_t place, Vector<T, V>& g, Vector<T, V>& value) const {
    g = load<V>(gradient + place);
    value = load<V>(x + place);
    if (!y) return;
    const Vector<T, V> result = load<V>(y + place);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float clipped = convert<float>(result.item[i]);
      if (clipped <= low || clipped >= high) g.item[i] = convert<T>(0.f);
    }
  }
};

// The sums over the block's rows, one channel for each thread t < X * V.
template <typename T, int V, int X, int Y>
__device__ Sums sums_of_block(const Images<T>& images, const float* mean,
                              const float* inverse_deviation, const Walk& at, int channels) {
  constexpr int WARPS = X * Y / 32, TILE = X * V;
  __shared__ float shifts[WARPS][TILE], scales[WARPS][TILE];
  float shift[V] = {}, scale[V] = {};
  if (at.channel < channels) {
    float center[V];
#pragma unroll
    for (int i = 0; i < V; ++i) center[i] = mean[at.channel + i];
#pragma unroll AHEAD
    for (int row = at.first; row < at.last; row += at.step) {
      Vector<T, V> g, x;
      images.read((size_t)row * channels + at.channel, g, x);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        shift[i] += convert<float>(g.item[i]);
        scale[i] += convert<float>(g.item[i]) * (convert<float>(x.item[i]) - center[i]);
      }
    }
  }
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
  const int channel = at.channel - (int)threadIdx.x * V + thread;
  if (thread >= TILE || channel >= channels) return {};
  Sums sums = {};
#pragma unroll
  for (int i = 0; i < WARPS; ++i) {
    sums.shift += shifts[i][thread];
    sums.scale += scales[i][thread];
  }
  sums.scale *= inverse_deviation[channel];
  return sums;
}

// dx = factor * g - constant - slope * (x - center)
template <int V> struct Affine {
  float center[V], factor[V], constant[V], slope[V];

  __device__ void set(int i, Sums sums, const float* scale, const float* mean,
                      const float* inverse_deviation, int channel, int rows) {
    const float inverse = inverse_deviation[channel];
    center[i] = mean[channel];
    factor[i] = scale ? scale[channel] * inverse : inverse;
    constant[i] = factor[i] * (sums.shift / rows);
    slope[i] = factor[i] * inverse * (sums.scale / rows);
  }
};

template <typename T, int V>
__device__ void apply(const Images<T>& images, T* dx, T* dresidual, const Walk& at, int channels,
                      const Affine<V>& by) {
  for (int row = at.first; row < at.last; row += AHEAD * at.step) {
    Vector<T, V> g[AHEAD] = {}, x[AHEAD] = {};
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (row + a * at.step < at.last)
        images.read((size_t)(row + a * at.step) * channels + at.channel, g[a], x[a]);
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (row + a * at.step < at.last) {
        const size_t place = (size_t)(row + a * at.step) * channels + at.channel;
        if (dresidual) store<V>(dresidual + place, g[a]);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          const float distance = convert<float>(x[a].item[i]) - by.center[i];
          x[a].item[i] = convert<T>(by.factor[i] * convert<float>(g[a].item[i]) - by.constant[i] -
                                   by.slope[i] * distance);
        }
        store<V>(dx + place, x[a]);
      }
    }
  }
}

template <typename T, int V, int X, int Y, int CLUSTER>
__global__ void CLUSTER_OF(CLUSTER) __launch_bounds__(X * Y)
    at_once(const T* gradient, const T* y, const T* x, const float* scale, const float* mean,
            const float* inverse_deviation, T* dx, float* dscale, float* dshift, T* dresidual,
            float*, int rows, int channels, float low, float high) {
  constexpr int TILE = X * V;
  __shared__ float part[2][TILE], whole[2][TILE];
  const int rank = blockIdx.x % CLUSTER, tile = blockIdx.x / CLUSTER;
  const int thread = threadIdx.y * X + threadIdx.x, channel = tile * TILE + thread;
  const Walk at = walk<V>(rank, CLUSTER, tile, rows);
  const Images<T> images(gradient, y, x, low, high);
  Sums sums = sums_of_block<T, V, X, Y>(images, mean, inverse_deviation, at, channels);
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
    CLUSTER_ARRIVE();  // no block may end while another reads its shared memory
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
      by.set(i, {whole[0][place], whole[1][place]}, scale, mean, inverse_deviation,
             at.channel + i, rows);
    }
    apply(images, dx, dresidual, at, channels, by);
  }
  if constexpr (CLUSTER > 1) CLUSTER_WAIT();
}

// ------------------------------------------------------------ in parts

// scratch is [parts, 2, channels]: the parts of dshift and of dscale.
template <typename T, int V, int X, int Y>
__global__ void __launch_bounds__(X * Y)
    sums_of_parts(const T* gradient, const T* y, const T* x, const float*, const float* mean,
                  const float* inverse_deviation, T*, float*, float*, T*, float* scratch, int rows,
                  int channels, float low, float high) {
  const int thread = threadIdx.y * X + threadIdx.x, channel = blockIdx.y * X * V + thread;
  const Walk at = walk<V>(blockIdx.x, gridDim.x, blockIdx.y, rows);
  const Images<T> images(gradient, y, x, low, high);
  const Sums own = sums_of_block<T, V, X, Y>(images, mean, inverse_deviation, at, channels);
  if (thread >= X * V || channel >= channels) return;
  scratch[(size_t)blockIdx.x * 2 * channels + channel] = own.shift;
  scratch[((size_t)blockIdx.x * 2 + 1) * channels + channel] = own.scale;
}

template <int Y>
__global__ void __launch_bounds__(32 * Y)
    join_parts(const void*, const void*, const void*, const float*, const float*, const float*,
               void*, float* dscale, float* dshift, void*, const float* scratch, int channels,
               int parts) {
  __shared__ Sums lanes[Y][32];
  const int channel = blockIdx.x * 32 + threadIdx.x;
  Sums sums = {};
  if (channel < channels) {
#pragma unroll 4
    for (int i = threadIdx.y; i < parts; i += Y) {
      sums.shift += scratch[(size_t)i * 2 * channels + channel];
      sums.scale += scratch[((size_t)i * 2 + 1) * channels + channel];
    }
  }
  lanes[threadIdx.y][threadIdx.x] = sums;
  __syncthreads();
  if (channel >= channels || threadIdx.y > 0) return;
  for (int i = 1; i < Y; ++i) {
    sums.shift += lanes[i][threadIdx.x].shift;
    sums.scale += lanes[i][threadIdx.x].scale;
  }
  dshift[channel] = sums.shift;
  dscale[channel] = sums.scale;
}

template <typename T, int V>
__global__ void differentiate(const T* gradient, const T* y, const T* x, const float* scale,
                              const float* mean, const float* inverse_deviation, T* dx,
                              const float* dscale, const float* dshift, T* dresidual, const float*,
                              int rows, int channels, float low, float high) {
  const Walk at = walk<V>(blockIdx.x, gridDim.x, blockIdx.y, rows);
  if (at.channel >= channels) return;
  const Images<T> images(gradient, y, x, low, high);
  Affine<V> by;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int channel = at.channel + i;
    by.set(i, {dshift[channel], dscale[channel]}, scale, mean, inverse_deviation, channel, rows);
  }
  apply(images, dx, dresidual, at, channels, by);
}
