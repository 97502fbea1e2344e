// What group norm needs of all elements of a group: images are [images, rows, channels] with rows =
// H*W, a group is some adjacent channels of an image.
//
// First the sums of each channel over the rows, so that memory is read in the order in which it
// is stored, whatever the size of a group; then a warp joins the channels of a group. Of a small image a
// block takes all rows of some groups alone.

constexpr int SAMPLES = 8;

// A number near the mean of each of V channels: of a few rows that lie far from one another. Sums of
// distances from it are exact enough for the variance (Chan, Golub and LeVeque 1983, "Algorithms for
// computing the sample variance"), and one row that stands out does not move it far.
template <int V, typename T>
__device__ Vector<float, V> near_mean(const T* x, long long rows, long long channels) {
  Vector<float, V> sum = {};
#pragma unroll
  for (int k = 0; k < SAMPLES; ++k) {
    const Vector<T, V> row = load<V>(x + rows * k / SAMPLES * channels);
#pragma unroll
    for (int v = 0; v < V; ++v) sum.item[v] += convert<float>(row.item[v]);
  }
#pragma unroll
  for (int v = 0; v < V; ++v) sum.item[v] /= SAMPLES;
  return sum;
}

// sums [2, images, channels]: of the distances, and of their squares. True in blocks that store some.
template <typename T, int V, int THREADS>
__device__ bool add_distances(const T* x, float* sums, float* partial, unsigned* arrivals,
                              int images, long long rows, long long channels, int tiles) {
  const Share share = share_of<V>(rows, tiles);
  const T* image = x + share.outer * rows * channels;
  Vector<float, V> near = {};
  if (share.column < channels) near = near_mean<V>(image + share.column, rows, channels);
  return sum_over_rows<2, V, THREADS>(
      share, channels, partial, arrivals,
      [=](long long row) { return load<V>(image + row * channels + share.column); },
      [&](const Vector<T, V>& row, float(&all)[2][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float distance = convert<float>(row.item[v]) - near.item[v];
          all[0][v] += distance;
          all[1][v] += distance * distance;
        }
      },
      [=](int sum, long long channel, float value) {
        sums[(sum * (long long)images + share.outer) * channels + channel] = value;
      });
}

template <typename T, int V, int THREADS>
__global__ void moments_of_channels(const T* x, float* sums, float* partial, unsigned* arrivals,
                                    int images, long long rows, long long channels, int tiles) {
  add_distances<T, V, THREADS>(x, sums, partial, arrivals, images, rows, channels, tiles);
}

// The sum over the lanes of a warp; every lane gets it.
__device__ inline float sum_of_warp(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// The mean of a channel from the sum of its distances; x is its first element.
template <typename T>
__device__ float mean_of_channel(const T* x, float sum, long long rows, long long channels) {
  return near_mean<1>(x, rows, channels).item[0] + sum * (1.f / rows);
}

// A warp for each group. count: images * groups; of_group: channels of a group.
template <typename T>
__global__ void moments_of_groups(const T* x, const float* sums, float* mean, float* deviation,
                                  int count, int images, int of_group, long long rows,
                                  long long channels, float epsilon) {
  const int group = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (group >= count) return;
  const long long groups = channels / of_group, first = (long long)group * of_group;
  const T* image = x + group / groups * rows * channels;
  const long long all = images * channels;
  const float each = 1.f / rows;
  auto mean_of = [&](int k) {
    const long long place = first + k;
    return mean_of_channel(image + place % channels, sums[place], rows, channels);
  };
  float middle = 0.f;
  for (int k = lane; k < of_group; k += 32) middle += mean_of(k);
  middle = sum_of_warp(middle) / of_group;
  float variance = 0.f;
  for (int k = lane; k < of_group; k += 32) {
    const float sum = sums[first + k], distance = mean_of(k) - middle;
    variance += (sums[all + first + k] - sum * sum * each) * each + distance * distance;
  }
  variance = sum_of_warp(variance) / of_group;
  const float found = 1.f / sqrtf(variance + epsilon);
  for (int k = lane; k < of_group; k += 32) {
    mean[first + k] = middle;
    deviation[first + k] = found;
  }
}

// The sum of what the threads of a block have, for all of them. values: one for each thread.
__device__ inline float sum_of_block(float* values, int self, int threads, float value) {
  __syncthreads();
  values[self] = value;
  add_rows(values, threads, 1);
  return values[0];
}

// All of it in one launch, for few groups: the block that ends an image joins them one by one.
// arrivals: a counter for each image, then those of the sums.
template <typename T, int V, int THREADS>
__global__ void moments_of_images(const T* x, float* mean, float* deviation, float* sums,
                                  float* partial, unsigned* arrivals, int images, long long rows,
                                  long long channels, int tiles, int of_group, float epsilon) {
  __shared__ float values[THREADS];
  const int image = blockIdx.x / tiles, threads = blockDim.x * blockDim.y;
  const int self = threadIdx.y * blockDim.x + threadIdx.x;
  const bool stored = add_distances<T, V, THREADS>(x, sums, partial, arrivals + images, images,
                                                   rows, channels, tiles);
  if (!stored || !arrives_last(arrivals + image, tiles)) return;
  const T* own = x + image * rows * channels;
  const float* plain = sums + image * channels;
  const float* squares = plain + images * channels;
  const float each = 1.f / rows;
  for (long long first = 0; first < channels; first += of_group) {
    float middle = 0.f, variance = 0.f;
    for (long long k = first + self; k < first + of_group; k += threads)
      middle += mean_of_channel(own + k, plain[k], rows, channels);
    middle = sum_of_block(values, self, threads, middle) / of_group;
    for (long long k = first + self; k < first + of_group; k += threads) {
      const float distance = mean_of_channel(own + k, plain[k], rows, channels) - middle;
      variance += (squares[k] - plain[k] * plain[k] * each) * each + distance * distance;
    }
    variance = sum_of_block(values, self, threads, variance) / of_group;
    const float found = 1.f / sqrtf(variance + epsilon);
    for (long long k = first + self; k < first + of_group; k += threads) {
      mean[image * channels + k] = middle;
      deviation[image * channels + k] = found;
    }
  }
}

// All of it in one launch, by blocks that take whole groups, each of which a thread joins: at most
// MOST channels.
template <typename T, int V, int THREADS, int MOST>
__global__ void moments_of_whole_groups(const T* x, float* mean, float* deviation, int of_group,
                                        long long rows, long long channels, int tiles,
                                        float epsilon) {
  __shared__ float sums[2][MOST], nears[MOST];
  const Share share = share_of<V>(rows, tiles);
  const T* image = x + share.outer * rows * channels;
  const long long begin = share.column - threadIdx.x * V;
  Vector<float, V> near = {};
  if (share.column < channels) near = near_mean<V>(image + share.column, rows, channels);
  if (threadIdx.y == 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) nears[threadIdx.x * V + v] = near.item[v];
  }
  sum_over_rows<2, V, THREADS>(
      share, channels, nullptr, nullptr,
      [=](long long row) { return load<V>(image + row * channels + share.column); },
      [&](const Vector<T, V>& row, float(&all)[2][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float distance = convert<float>(row.item[v]) - near.item[v];
          all[0][v] += distance;
          all[1][v] += distance * distance;
        }
      },
      [&](int sum, long long channel, float value) { sums[sum][channel - begin] = value; });
  __syncthreads();
  const int first = (threadIdx.y * blockDim.x + threadIdx.x) * of_group;
  if (first >= blockDim.x * V || begin + first >= channels) return;
  const float each = 1.f / rows;
  float middle = 0.f, variance = 0.f;
  for (int k = first; k < first + of_group; ++k) middle += nears[k] + sums[0][k] * each;
  middle /= of_group;
  for (int k = first; k < first + of_group; ++k) {
    const float sum = sums[0][k], distance = nears[k] + sum * each - middle;
    variance += (sums[1][k] - sum * sum * each) * each + distance * distance;
  }
  const float found = 1.f / sqrtf(variance / of_group + epsilon);
  for (int k = first; k < first + of_group; ++k) {
    mean[share.outer * channels + begin + k] = middle;
    deviation[share.outer * channels + begin + k] = found;
  }
}

template <typename G, typename T, int V> struct Both {
  Vector<G, V> gradient;
  Vector<T, V> x;
};

// sums [2, images, channels]: of the gradient, and of the gradient times (x - mean) * deviation.
// True in blocks that store some.
template <typename G, typename T, int V, int THREADS>
__device__ bool add_gradients(const G* gradient, const T* x, const float* mean,
                              const float* deviation, float* sums, float* partial,
                              unsigned* arrivals, int images, long long rows, long long channels,
                              int tiles) {
  const Share share = share_of<V>(rows, tiles);
  const long long image = share.outer * rows * channels + share.column;
  float center[V] = {}, factor[V] = {};
  if (share.column < channels) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      center[v] = mean[share.outer * channels + share.column + v];
      factor[v] = deviation[share.outer * channels + share.column + v];
    }
  }
  return sum_over_rows<2, V, THREADS>(
      share, channels, partial, arrivals,
      [=](long long row) -> Both<G, T, V> {
        return {load<V>(gradient + image + row * channels), load<V>(x + image + row * channels)};
      },
      [&](const Both<G, T, V>& row, float(&all)[2][V]) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float outer = convert<float>(row.gradient.item[v]);
          all[0][v] += outer;
          all[1][v] += outer * ((convert<float>(row.x.item[v]) - center[v]) * factor[v]);
        }
      },
      [=](int sum, long long channel, float value) {
        sums[(sum * (long long)images + share.outer) * channels + channel] = value;
      });
}

template <typename G, typename T, int V, int THREADS>
__global__ void gradients_of_channels(const G* gradient, const T* x, const float* mean,
                                      const float* deviation, float* sums, float* partial,
                                      unsigned* arrivals, int images, long long rows,
                                      long long channels, int tiles) {
  add_gradients<G, T, V, THREADS>(gradient, x, mean, deviation, sums, partial, arrivals, images,
                                  rows, channels, tiles);
}

// A warp for each group, as above: factor = weight * deviation, slope = -second * deviation^2, offset
// = -first * deviation, where first and second are the means of both sums, after a product with the
// weight, over the elements of the group. The weight may be absent.
__global__ void gradients_of_groups(const float* sums, const float* deviation, const float* weight,
                                    float* factor, float* slope, float* offset, int count,
                                    int images, int of_group, long long rows, long long channels) {
  const int group = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (group >= count) return;
  const long long begin = (long long)group * of_group, all = images * channels;
  float first = 0.f, second = 0.f;
  for (int k = lane; k < of_group; k += 32) {
    const float scale = weight ? weight[(begin + k) % channels] : 1.f;
    first += scale * sums[begin + k];
    second += scale * sums[all + begin + k];
  }
  const float size = (float)rows * of_group, found = deviation[begin];
  first = sum_of_warp(first) / size * found;
  second = sum_of_warp(second) / size * found;
  for (int k = lane; k < of_group; k += 32) {
    factor[begin + k] = weight ? weight[(begin + k) % channels] * found : found;
    slope[begin + k] = -second * found;
    offset[begin + k] = -first;
  }
}

// Both in one launch, for few groups, as moments_of_images.
template <typename G, typename T, int V, int THREADS>
__global__ void gradients_of_images(const G* gradient, const T* x, const float* mean,
                                    const float* deviation, const float* weight, float* sums,
                                    float* factor, float* slope, float* offset, float* partial,
                                    unsigned* arrivals, int images, long long rows,
                                    long long channels, int tiles, int of_group) {
  __shared__ float values[THREADS];
  const int image = blockIdx.x / tiles, threads = blockDim.x * blockDim.y;
  const int self = threadIdx.y * blockDim.x + threadIdx.x;
  const bool stored =
      add_gradients<G, T, V, THREADS>(gradient, x, mean, deviation, sums, partial,
                                      arrivals + images, images, rows, channels, tiles);
  if (!stored || !arrives_last(arrivals + image, tiles)) return;
  const long long own = image * channels, all = images * channels;
  for (long long begin = 0; begin < channels; begin += of_group) {
    float first = 0.f, second = 0.f;
    for (long long k = begin + self; k < begin + of_group; k += threads) {
      const float scale = weight ? weight[k] : 1.f;
      first += scale * sums[own + k];
      second += scale * sums[all + own + k];
    }
    const float size = (float)rows * of_group, found = deviation[own + begin];
    first = sum_of_block(values, self, threads, first) / size * found;
    second = sum_of_block(values, self, threads, second) / size * found;
    for (long long k = begin + self; k < begin + of_group; k += threads) {
      factor[own + k] = weight ? weight[k] * found : found;
      slope[own + k] = -second * found;
      offset[own + k] = -first;
    }
  }
}

// The gradients of weight and bias, either of which may be absent: the sums over the images.
__global__ void gradients_of_vectors(const float* sums, float* of_weight, float* of_bias,
                                     int images, int channels) {
  const int channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  const long long all = (long long)images * channels;
  float plain = 0.f, projected = 0.f;
  for (int image = 0; image < images; ++image) {
    plain += sums[(long long)image * channels + channel];
    projected += sums[all + (long long)image * channels + channel];
  }
  if (of_weight) of_weight[channel] = projected;
  if (of_bias) of_bias[channel] = plain;
}
