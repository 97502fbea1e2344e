// The mean of each window, and the gradient; `averages.cuh` computes the sums.

template <typename T, int N>
__global__ void average_pool(const T* x, T* y, WINDOWS, int counts, int given) {
  mean<T, N, Strided>(x, y, groups, given, DOWN(counts != 0), ACROSS(counts != 0));
}

template <typename T, int N>
__global__ void average_pool_backward(const T* dy, T* dx, WINDOWS, int counts, int given) {
  spread<T, N, Strided>(dy, dx, groups, given, DOWN(counts != 0), ACROSS(counts != 0));
}
