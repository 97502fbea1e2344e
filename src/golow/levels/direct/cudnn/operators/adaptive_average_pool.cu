// Means over windows that cover the image, for a given size of the result, and the gradient. The
// gradient of the mean of a whole image has its own kernel.

#define SIZES int groups, int size_y, int out_y, int size_x, int out_x

template <typename T, int N>
__global__ void adaptive_average_pool(const T* x, T* y, SIZES) {
  mean<T, N, Adaptive>(x, y, groups, 0, {size_y, out_y}, {size_x, out_x});
}

template <typename T, int N>
__global__ void adaptive_average_pool_backward(const T* dy, T* dx, SIZES) {
  spread<T, N, Adaptive>(dy, dx, groups, 0, {size_y, out_y}, {size_x, out_x});
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
