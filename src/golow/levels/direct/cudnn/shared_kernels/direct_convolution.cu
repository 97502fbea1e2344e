// Convolution by its definition, for any groups, stride, padding and dilation. Images are NHWC,
// weights [K, R, S, C] with C channels for each group. A group has F filters, so filter k is in
// group g = k / F.
//
//   y[n, p, q, k]  = clip(bias[k] + residual[n, p, q, k] + sum over r, s, c of
//                         x[n, p * stride - top + r * dilation, ..., g * C + c] * w[k, r, s, c])
//   dx[n, h, w, c] = sum over filters k of c's group and over the taps r, s that read the pixel:
//                         dy[n, (h + top - r * dilation) / stride, ..., k] * w[k, r, s, c]
//   dw[k, r, s, c] = sum over n, p, q of
//                         dy[n, p, q, k] * x[n, p * stride - top + r * dilation, ..., g * C + c]
//
// One thread computes one number or, in forward, STRIP adjacent pixels in a row of y, which share
// their weights. Adjacent threads have adjacent channels. dw is summed in parts of the rows of y;
// the parts are then added in order.

struct Shape {
  int images, height, width, channels, filters, out_height, out_width;
  int stride_y, stride_x, top, left, dilation_y, dilation_x, groups;
};

#define SHAPE_ARGUMENTS                                                                            \
  int images, int height, int width, int channels, int filters, int out_height, int out_width,     \
      int stride_y, int stride_x, int top, int left, int dilation_y, int dilation_x, int groups
#define SHAPE                                                                                      \
  { images, height, width, channels, filters, out_height, out_width, stride_y, stride_x, top,      \
    left, dilation_y, dilation_x, groups }

template <typename T, typename W, int C, int R, int S, int STRIP>
__global__ void __launch_bounds__(128)
    forward(const T* x, const W* weight, const float* bias, const T* residual, T* y,
            SHAPE_ARGUMENTS, float low, float high) {
  const Shape at = SHAPE;
  const int strips = (at.out_width + STRIP - 1) / STRIP;
  const long long all = (long long)at.images * at.out_height * strips * at.filters;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const int k = i % at.filters, q = (int)(i / at.filters % strips) * STRIP;
    const int line = i / at.filters / strips, n = line / at.out_height, p = line % at.out_height;
    const int first = k / (at.filters / at.groups) * C;
    float sum[STRIP];
#pragma unroll
    for (int j = 0; j < STRIP; ++j) sum[j] = bias ? bias[k] : 0.f;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int h = p * at.stride_y - at.top + r * at.dilation_y;
      if (h < 0 || h >= at.height) continue;
      const T* pixels = x + ((size_t)n * at.height + h) * at.width * at.channels + first;
#pragma unroll
      for (int s = 0; s < S; ++s) {
        const W* tap = weight + (((size_t)k * R + r) * S + s) * C;
        int column[STRIP];
#pragma unroll
        for (int j = 0; j < STRIP; ++j)
          column[j] = (q + j) * at.stride_x - at.left + s * at.dilation_x;
#pragma unroll 8
        for (int c = 0; c < C; ++c) {
          const float factor = convert<float>(tap[c]);
#pragma unroll
          for (int j = 0; j < STRIP; ++j)
            if (column[j] >= 0 && column[j] < at.width)
              sum[j] += convert<float>(pixels[(size_t)column[j] * at.channels + c]) * factor;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < STRIP; ++j) {
      if (q + j >= at.out_width) continue;
      const size_t place = ((size_t)line * at.out_width + q + j) * at.filters + k;
      if (residual) sum[j] += convert<float>(residual[place]);
      y[place] = convert<T>(clipped(sum[j], low, high));
    }
  }
}

// The row or column of y whose window reads `position` with this tap; -1 if there is none.
__device__ inline int met(int position, int tap_offset, int stride, int size) {
  const int distance = position - tap_offset;
  if (distance < 0 || distance % stride) return -1;
  return distance / stride < size ? distance / stride : -1;
}

template <typename T, typename W, int C, int R, int S>
__global__ void __launch_bounds__(128)
    backward_data(const T* dy, const W* weight, T* dx, SHAPE_ARGUMENTS) {
  const Shape at = SHAPE;
  const int own = at.filters / at.groups;  // filters of a group
  const long long all = (long long)at.images * at.height * at.width * at.channels;
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    const int channel = i % at.channels, w = i / at.channels % at.width;
    const int line = i / at.channels / at.width, n = line / at.height, h = line % at.height;
    const int first = channel / C * own, c = channel % C;
    float sum = 0.f;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int p = met(h + at.top, r * at.dilation_y, at.stride_y, at.out_height);
      if (p < 0) continue;
#pragma unroll
      for (int s = 0; s < S; ++s) {
        const int q = met(w + at.left, s * at.dilation_x, at.stride_x, at.out_width);
        if (q < 0) continue;
        const T* gradient =
            dy + (((size_t)n * at.out_height + p) * at.out_width + q) * at.filters + first;
        const W* taps = weight + (((size_t)first * R + r) * S + s) * C + c;
#pragma unroll 8
        for (int k = 0; k < own; ++k)
          sum += convert<float>(gradient[k]) * convert<float>(taps[(size_t)k * R * S * C]);
      }
    }
    dx[i] = convert<T>(sum);
  }
}

// A block has 32 weights. The parts (blockIdx.y) and a block's 8 warps take the rows of y in turn.
template <typename T, int C, int R, int S>
__global__ void __launch_bounds__(256)
    backward_weight(const T* dy, const T* x, float* dw, float* scratch, SHAPE_ARGUMENTS) {
  const Shape at = SHAPE;
  __shared__ float sums[8][32];
  const int weights = at.filters * R * S * C, i = blockIdx.x * 32 + threadIdx.x;
  const int c = i % C, s = i / C % S, r = i / C / S % R, k = i / C / S / R;
  const int channel = k / (at.filters / at.groups) * C + c, lines = at.images * at.out_height;
  float sum = 0.f;
  for (int line = blockIdx.y * 8 + threadIdx.y; line < lines && i < weights;
       line += gridDim.y * 8) {
    const int n = line / at.out_height, p = line % at.out_height;
    const int h = p * at.stride_y - at.top + r * at.dilation_y;
    if (h < 0 || h >= at.height) continue;
    const T* gradient = dy + (size_t)line * at.out_width * at.filters + k;
    const T* pixels = x + ((size_t)n * at.height + h) * at.width * at.channels + channel;
#pragma unroll 4
    for (int q = 0; q < at.out_width; ++q) {
      const int w = q * at.stride_x - at.left + s * at.dilation_x;
      if (w >= 0 && w < at.width)
        sum += convert<float>(gradient[(size_t)q * at.filters]) *
               convert<float>(pixels[(size_t)w * at.channels]);
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || i >= weights) return;
  for (int y = 1; y < 8; ++y) sum += sums[y][threadIdx.x];
  (gridDim.y == 1 ? dw : scratch + (size_t)blockIdx.y * weights)[i] = sum;
}

// dw = the sum of the parts in scratch [parts, weights].
template <int Y>
__global__ void __launch_bounds__(32 * Y)
    add_parts(const void*, const void*, float* dw, const float* scratch, int weights, int parts) {
  __shared__ float sums[Y][32];
  const int i = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.f;
  if (i < weights) {
#pragma unroll 4
    for (int part = threadIdx.y; part < parts; part += Y)
      sum += scratch[(size_t)part * weights + i];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || i >= weights) return;
  for (int y = 1; y < Y; ++y) sum += sums[y][threadIdx.x];
  dw[i] = sum;
}
