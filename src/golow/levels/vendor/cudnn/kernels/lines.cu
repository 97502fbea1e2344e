// Lines x [lines, length]: what is found along each of them. The order of every sum, and which of
// several equal elements is found, depend only on the shape.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T>
__device__ inline float wide(T value) {
  return static_cast<float>(value);
}
__device__ inline long long wide(long long value) { return value; }
__device__ inline long long wide(int value) { return value; }
__device__ inline long long wide(unsigned char value) { return value; }
__device__ inline long long wide(bool value) { return value; }

struct Sum {
  template <typename C>
  __device__ static C of(C a, C b) { return a + b; }
};
struct Product {
  template <typename C>
  __device__ static C of(C a, C b) { return a * b; }
};
struct Largest {
  template <typename C>
  __device__ static C of(C a, C b) { return a > b || a != a ? a : b; }
};
struct Smallest {
  template <typename C>
  __device__ static C of(C a, C b) { return a < b || a != a ? a : b; }
};

// A block takes a line. Threads that have no element of their own do not take part.
template <typename T, typename C, typename Y, typename Function>
__global__ void fold(const T* x, Y* y, long long length) {
  __shared__ C found[256];
  const T* line = x + blockIdx.x * length;
  const int taking = length < blockDim.x ? static_cast<int>(length) : blockDim.x;
  if (threadIdx.x < taking) {
    C value = wide(line[threadIdx.x]);
    for (long long k = threadIdx.x + blockDim.x; k < length; k += blockDim.x) {
      value = Function::of(value, static_cast<C>(wide(line[k])));
    }
    found[threadIdx.x] = value;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    C value = found[0];
    for (int k = 1; k < taking; ++k) value = Function::of(value, found[k]);
    y[blockIdx.x] = static_cast<Y>(value);
  }
}

// The first place of the largest or smallest element.
template <typename T, typename C, bool SMALLEST>
__global__ void place(const T* x, long long* y, long long length) {
  __shared__ C values[256];
  __shared__ long long places[256];
  const T* line = x + blockIdx.x * length;
  const int taking = length < blockDim.x ? static_cast<int>(length) : blockDim.x;
  if (threadIdx.x < taking) {
    C best = wide(line[threadIdx.x]);
    long long where = threadIdx.x;
    for (long long k = threadIdx.x + blockDim.x; k < length; k += blockDim.x) {
      const C value = wide(line[k]);
      if (SMALLEST ? value < best : value > best) best = value, where = k;
    }
    values[threadIdx.x] = best;
    places[threadIdx.x] = where;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    C best = values[0];
    long long where = places[0];
    for (int k = 1; k < taking; ++k) {
      const bool better = SMALLEST ? values[k] < best : values[k] > best;
      if (better || (values[k] == best && places[k] < where)) best = values[k], where = places[k];
    }
    y[blockIdx.x] = where;
  }
}

// Each element's rank is the number of those that come before it; equal ones keep their order.
template <typename T, typename C, bool DESCENDING>
__global__ void sort(const T* x, T* values, long long* places, long long length) {
  const T* line = x + blockIdx.x * length;
  for (long long i = threadIdx.x; i < length; i += blockDim.x) {
    const C own = wide(line[i]);
    long long rank = 0;
    for (long long k = 0; k < length; ++k) {
      const C other = wide(line[k]);
      const bool before = DESCENDING ? other > own : other < own;
      rank += before || (other == own && k < i);
    }
    values[blockIdx.x * length + rank] = line[i];
    places[blockIdx.x * length + rank] = i;
  }
}

// Running sums of x [outer, length, inner] along its middle axis; a thread takes a line.
template <typename T, typename C, typename Y>
__global__ void running_sums(const T* x, Y* y, long long lines, long long length,
                             long long inner) {
  const long long line = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (line >= lines) return;
  const long long start = line / inner * length * inner + line % inner;
  C sum = 0;
  for (long long k = 0; k < length; ++k) {
    sum += static_cast<C>(wide(x[start + k * inner]));
    y[start + k * inner] = static_cast<Y>(sum);
  }
}
