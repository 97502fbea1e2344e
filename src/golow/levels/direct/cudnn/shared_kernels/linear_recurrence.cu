// y[t] = decay[t] y[t - 1] + x[t] along an axis, and the gradients of decay and x. A thread has a
// line; neighbouring threads have lines that are adjacent in memory. Sums are in float32.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Where a tensor is: its first element, the distances along the four axes of lines, and of steps.
#define PLACE(name)                                                                             \
  long long name##_first, long long name##_0, long long name##_1, long long name##_2,           \
      long long name##_3, long long name##_step
#define START(name)                                                                             \
  (name##_first + i0 * name##_0 + i1 * name##_1 + i2 * name##_2 + i3 * name##_3)
// The indices of a thread's line; the last axis is the innermost.
#define INDICES                                                                                 \
  long long line = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;               \
  if (line >= lines) return;                                                                    \
  const long long i3 = line % size_3;                                                           \
  line /= size_3;                                                                               \
  const long long i2 = line % size_2;                                                           \
  line /= size_2;                                                                               \
  const long long i1 = line % size_1, i0 = line / size_1;

template <typename A, typename X, typename Y>
__global__ void linear_recurrence(const A* __restrict__ decay, const X* __restrict__ x,
                                  Y* __restrict__ y, long long lines, long long length,
                                  long long size_1, long long size_2, long long size_3,
                                  PLACE(decay), PLACE(x), PLACE(y)) {
  INDICES
  decay += START(decay), x += START(x), y += START(y);
  float state = 0;
#pragma unroll 8
  for (long long t = 0; t < length; ++t) {
    const float term = static_cast<float>(x[t * x_step]);
    state = t == 0 ? term : static_cast<float>(decay[t * decay_step]) * state + term;
    y[t * y_step] = static_cast<Y>(state);
  }
}

// From the last step to the first: gradient of x[t] = gradient of y[t] + decay[t + 1] times that of
// x[t + 1]; gradient of decay[t] = gradient of x[t] times y[t - 1].
template <typename G, typename A, typename Y, typename R>
__global__ void linear_recurrence_backward(const G* __restrict__ gradient,
                                           const A* __restrict__ decay, const Y* __restrict__ y,
                                           R* __restrict__ of_decay, R* __restrict__ of_x,
                                           long long lines, long long length, long long size_1,
                                           long long size_2, long long size_3, PLACE(gradient),
                                           PLACE(decay), PLACE(y), PLACE(of_decay), PLACE(of_x)) {
  INDICES
  gradient += START(gradient), decay += START(decay), y += START(y);
  of_decay += START(of_decay), of_x += START(of_x);
  float carried = 0;
#pragma unroll 8
  for (long long t = length - 1; t >= 0; --t) {
    const float here = static_cast<float>(gradient[t * gradient_step]) + carried;
    const float before = t > 0 ? static_cast<float>(y[(t - 1) * y_step]) : 0.0f;
    of_x[t * of_x_step] = static_cast<R>(here);
    of_decay[t * of_decay_step] = static_cast<R>(t > 0 ? here * before : 0.0f);
    carried = here * static_cast<float>(decay[t * decay_step]);
  }
}
