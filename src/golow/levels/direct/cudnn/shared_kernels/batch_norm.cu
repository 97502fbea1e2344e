// Batch norm over images [rows, channels] with rows = N*H*W, in training:
//
//   mean = sum(x) / rows,  variance = sum((x - mean)^2) / rows,  r = 1 / sqrt(variance + epsilon)
//   y = clip((x - mean) * r * scale + shift + residual)
//
// Rows are divided into parts, parts into threads. A thread updates mean and spread (the sum of
// squared distances from the mean) by Welford's method. Parts i of count c, mean m and spread s
// are merged (Chan) by
//
//   M = m_0 + sum(c_i * (m_i - m_0)) / sum(c_i),  S = sum(s_i + c_i * (m_i - M)^2)
//
// so that only distances are summed, never large numbers whose difference is small.
//
// Two strategies. At once: a cluster of blocks owns X vectors of channels. Its blocks share the
// rows and exchange sums through distributed shared memory; the second read hits the cache. In
// parts: one kernel for the sums of parts, one that merges them, one for the result.
//
// Absent operands are null: residual, scale (1), shift (0), running statistics, mask. The mask has
// a byte for each vector of V channels; bit i is set if channel i was not clipped. No pointer to
// images is __restrict__: y may alias x or residual, since a thread reads what it overwrites.
//
// The code before this file may define ACTIVATED, a function of the clipped result. Backward then
// computes its argument again. It may define RESULT_PITCH, the elements from one row of y to the
// next where y is a range of a wider image; then y aliases nothing.

#ifdef RESULT_PITCH
#define RESULT_PLACE ((size_t)(row + a * at.step) * RESULT_PITCH + at.channel)
#else
#define RESULT_PLACE place
#endif
#ifndef ACTIVATED
#define ACTIVATED(value) (value)
#endif

constexpr int AHEAD = 4;  // rows that a thread loads ahead

// ------------------------------------------------------------ statistics

struct Moments { float count, mean, spread; };

// part(i) returns the moments of part i; it is called twice. No part but the last may be empty.
template <typename Part> __device__ Moments join(int first, int parts, int step, Part part) {
  if (first >= parts) return {};
  const float start = part(first).mean;
  float count = 0.f, sum = 0.f, spread = 0.f;
#pragma unroll 4
  for (int i = first; i < parts; i += step) {
    const Moments m = part(i);
    count += m.count;
    sum += m.count * (m.mean - start);
  }
  const float mean = count > 0.f ? start + sum / count : start;
#pragma unroll 4
  for (int i = first; i < parts; i += step) {
    const Moments m = part(i);
    spread += m.spread + m.count * (m.mean - mean) * (m.mean - mean);
  }
  return {count, mean, spread};
}

// Merges the values that the threads of a block have for V channels. Thread t < X * V returns the
// moments of one channel; the result of other threads is meaningless.
template <int V, int X, int Y>
__device__ Moments joined(float count, const float (&mean)[V], const float (&spread)[V]) {
  constexpr int WARPS = X * Y / 32, TILE = X * V;
  __shared__ float counts[WARPS][X], means[WARPS][TILE], spreads[WARPS][TILE];
  const int thread = threadIdx.y * X + threadIdx.x, warp = thread / 32;
  const float total = sum_of_lanes(count), share = total > 0.f ? 1.f / total : 0.f;
  if (thread % 32 < X) counts[warp][threadIdx.x] = total;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const float start = __shfl_sync(0xffffffffu, mean[i], threadIdx.x);
    const float joined = start + sum_of_lanes(count * (mean[i] - start)) * share;
    const float distance = mean[i] - joined;
    const float around = sum_of_lanes(spread[i] + count * distance * distance);
    if (thread % 32 < X) {
      means[warp][threadIdx.x * V + i] = joined;
      spreads[warp][threadIdx.x * V + i] = around;
    }
  }
  __syncthreads();
  if (thread >= TILE) return {};
  return join(0, WARPS, 1, [&](int i) -> Moments {
    return {counts[i][thread / V], means[i][thread], spreads[i][thread]};
  });
}

template <typename T, int V, int X, int Y>
__device__ Moments moments_of_block(const T* x, const Walk& at, int channels) {
  float count = 0.f, mean[V] = {}, spread[V] = {};
  if (at.channel < channels) {
#pragma unroll AHEAD
    for (int row = at.first; row < at.last; row += at.step) {
      const Vector<T, V> vector = load<V>(x + (size_t)row * channels + at.channel);
      const float share = 1.f / (count += 1.f);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float value = convert<float>(vector.item[i]), distance = value - mean[i];
        mean[i] += distance * share;
        spread[i] += distance * (value - mean[i]);
      }
    }
  }
  return joined<V, X, Y>(count, mean, spread);
}

// Writes a channel's mean and 1 / deviation, updates its running statistics, returns the latter.
__device__ inline float keep(const Moments& all, int channel, bool writes, float* mean,
                             float* inverse_deviation, float* running_mean, float* running_variance,
                             float momentum, float epsilon) {
  // 1 / sqrt by exact operations: rsqrtf is off by two roundings.
  const float inverse = 1.f / sqrtf(all.spread / all.count + epsilon);
  if (!writes) return inverse;
  mean[channel] = all.mean;
  inverse_deviation[channel] = inverse;
  if (running_mean) {
    const float unbiased = all.spread / fmaxf(all.count - 1.f, 1.f);
    running_mean[channel] = (1.f - momentum) * running_mean[channel] + momentum * all.mean;
    running_variance[channel] =
        (1.f - momentum) * running_variance[channel] + momentum * unbiased;
  }
  return inverse;
}

// ------------------------------------------------------------ the result

// A thread's factors for its channels: y = (x - center) * factor + offset.
template <int V> struct Affine { float center[V], factor[V], offset[V]; };

// Bit i: channel i was not clipped.
template <typename T, int V>
__device__ unsigned char bits_of(const Vector<T, V>& result, float low, float high) {
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < V; ++i)
    bits |= (unsigned)passes(convert<float>(result.item[i]), low, high) << i;
  return bits;
}

template <typename T, int V>
__device__ void apply(const T* x, const T* residual, T* y, unsigned char* mask, const Walk& at,
                      int channels, const Affine<V>& by, float low, float high) {
  const float lowest = convert<float>(convert<T>(low)), highest = convert<float>(convert<T>(high));
  for (int row = at.first; row < at.last; row += AHEAD * at.step) {
    Vector<T, V> vector[AHEAD] = {}, other[AHEAD] = {};
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
      if (row + a * at.step < at.last) {
        const size_t place = (size_t)(row + a * at.step) * channels + at.channel;
        vector[a] = load<V>(x + place);
        if (residual) other[a] = load<V>(residual + place);
      }
    }
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) {
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float x = convert<float>(vector[a].item[i]);
        float value = normalized(x, by.center[i], by.factor[i], by.offset[i]);
        if (residual) value += convert<float>(other[a].item[i]);
        value = clipped(value, low, high);
        vector[a].item[i] = convert<T>(ACTIVATED(value));
      }
      if (row + a * at.step < at.last) {
        const size_t place = (size_t)(row + a * at.step) * channels + at.channel;
        store<V>(y + RESULT_PLACE, vector[a]);
        if (mask) mask[place / V] = bits_of(vector[a], lowest, highest);
      }
    }
  }
}

template <typename T, int V, int X, int Y, int CLUSTER>
__global__ void CLUSTER_OF(CLUSTER) __launch_bounds__(X * Y)
    at_once(const T* x, const T* residual, const float* scale, const float* shift, T* y,
            float* mean, float* inverse_deviation, float* running_mean, float* running_variance,
            unsigned char* mask, float*, int rows, int channels, float low, float high,
            float momentum, float epsilon) {
  constexpr int TILE = X * V;
  __shared__ float part[3][TILE], affine[3][TILE];
  const int rank = blockIdx.x % CLUSTER, tile = blockIdx.x / CLUSTER;
  const int thread = threadIdx.y * X + threadIdx.x, channel = tile * TILE + thread;
  const Walk at = walk<V>(rank, CLUSTER, tile, rows);
  Moments all = moments_of_block<T, V, X, Y>(x, at, channels);
  if constexpr (CLUSTER > 1) {
    if (thread < TILE) {
      part[0][thread] = all.count;
      part[1][thread] = all.mean;
      part[2][thread] = all.spread;
    }
    CLUSTER_ARRIVE();
    CLUSTER_WAIT();
    if (thread < TILE) {
      all = join(0, CLUSTER, 1, [&](int i) -> Moments {
        return {*OF_BLOCK(&part[0][thread], i), *OF_BLOCK(&part[1][thread], i),
                *OF_BLOCK(&part[2][thread], i)};
      });
    }
    CLUSTER_ARRIVE();  // no block may exit while another reads its shared memory
  }
  if (thread < TILE && channel < channels) {
    const float inverse = keep(all, channel, rank == 0, mean, inverse_deviation, running_mean,
                               running_variance, momentum, epsilon);
    affine[0][thread] = all.mean;
    affine[1][thread] = scale ? inverse * scale[channel] : inverse;
    affine[2][thread] = shift ? shift[channel] : 0.f;
  }
  __syncthreads();
  if (at.channel < channels) {
    Affine<V> by;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      by.center[i] = affine[0][threadIdx.x * V + i];
      by.factor[i] = affine[1][threadIdx.x * V + i];
      by.offset[i] = affine[2][threadIdx.x * V + i];
    }
    apply(x, residual, y, mask, at, channels, by, low, high);
  }
  if constexpr (CLUSTER > 1) CLUSTER_WAIT();
}

// ------------------------------------------------------------ in parts

// scratch is [parts, 2, channels]: mean and spread. A part has ceil(rows / parts) rows, the last
// one may have fewer.
template <typename T, int V, int X, int Y>
__global__ void __launch_bounds__(X * Y)
    moments_of_parts(const T* x, const T*, const float*, const float*, T*, float*, float*, float*,
                     float*, unsigned char*, float* scratch, int rows, int channels) {
  const int thread = threadIdx.y * X + threadIdx.x, channel = blockIdx.y * X * V + thread;
  const Walk at = walk<V>(blockIdx.x, gridDim.x, blockIdx.y, rows);
  const Moments own = moments_of_block<T, V, X, Y>(x, at, channels);
  if (thread >= X * V || channel >= channels) return;
  scratch[(size_t)blockIdx.x * 2 * channels + channel] = own.mean;
  scratch[((size_t)blockIdx.x * 2 + 1) * channels + channel] = own.spread;
}

// A block has many threads for few channels, so all parts load at once.
template <int X, int Y>
__global__ void __launch_bounds__(X * Y)
    join_parts(const void*, const void*, const float*, const float*, void*, float* mean,
               float* inverse_deviation, float* running_mean, float* running_variance, void*,
               const float* scratch, int rows, int channels, int parts, float momentum,
               float epsilon) {
  const int channel = blockIdx.x * X + threadIdx.x, size = (rows + parts - 1) / parts;
  Moments own = {};
  if (channel < channels) {
    own = join(threadIdx.y, parts, Y, [&](int i) -> Moments {
      const float* part = scratch + (size_t)i * 2 * channels + channel;
      return {(float)min(size, rows - i * size), part[0], part[channels]};
    });
  }
  const Moments all = joined<1, X, Y>(own.count, {own.mean}, {own.spread});
  if (threadIdx.y > 0 || channel >= channels) return;
  keep(all, channel, true, mean, inverse_deviation, running_mean, running_variance, momentum,
       epsilon);
}

template <typename T, int V>
__global__ void normalize(const T* x, const T* residual, const float* scale, const float* shift,
                          T* y, const float* mean, const float* inverse_deviation, const float*,
                          const float*, unsigned char* mask, const float*, int rows, int channels,
                          float low, float high) {
  const Walk at = walk<V>(blockIdx.x, gridDim.x, blockIdx.y, rows);
  if (at.channel >= channels) return;
  Affine<V> by;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const int channel = at.channel + i;
    by.center[i] = mean[channel];
    by.factor[i] = scale ? inverse_deviation[channel] * scale[channel] : inverse_deviation[channel];
    by.offset[i] = shift ? shift[channel] : 0.f;
  }
  apply(x, residual, y, mask, at, channels, by, low, high);
}
