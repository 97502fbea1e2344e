// y[..., index[..., k, ...], ...] = source[..., k, ...] or += for all k of a line, in order. A thread
// takes a line, so no two write to the same place. The line's other indices have up to four axes.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename Y, typename S>
__device__ inline Y as(S value) {
  return static_cast<Y>(static_cast<float>(value));
}
template <>
__device__ inline long long as<long long, long long>(long long value) {
  return value;
}

template <typename Place, typename S, typename Y, bool ADD>
__global__ void scatter_lines(const Place* index, const S* source, Y* y, long long lines,
                              long long length, long long size, long long place_step,
                              long long source_step, long long y_step, long long n_0,
                              long long p_0, long long s_0, long long t_0, long long n_1,
                              long long p_1, long long s_1, long long t_1, long long n_2,
                              long long p_2, long long s_2, long long t_2, long long n_3,
                              long long p_3, long long s_3, long long t_3) {
  const long long line = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (line >= lines) return;
  long long rest = line;
  const long long i_3 = rest % n_3;
  rest /= n_3;
  const long long i_2 = rest % n_2;
  rest /= n_2;
  const long long i_1 = rest % n_1;
  const long long i_0 = rest / n_1;
  const Place* places = index + i_0 * p_0 + i_1 * p_1 + i_2 * p_2 + i_3 * p_3;
  const S* from = source + i_0 * s_0 + i_1 * s_1 + i_2 * s_2 + i_3 * s_3;
  Y* to = y + i_0 * t_0 + i_1 * t_1 + i_2 * t_2 + i_3 * t_3;
  for (long long k = 0; k < length; ++k) {
    long long place = places[k * place_step];
    if (place < 0) place += size;
    const Y value = as<Y>(from[k * source_step]);
    if (ADD) {
      to[place * y_step] += value;
    } else {
      to[place * y_step] = value;
    }
  }
}
