// Several adjacent values at once: loading 16 bytes for a thread costs no more than loading 2.
//
// `load` and `store` take N values from an index on; at the end of a tensor of `count` values they
// touch only existing values. Pointers and indices are multiples of the vector, except at that end.
// Arithmetic is in float32 for every storage type.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ constexpr int aligned_bytes(int bytes) {
  const int power = bytes & -bytes;
  return power < 16 ? power : 16;
}

template <typename T, int N>
struct alignas(aligned_bytes(sizeof(T) * N)) Vector {
  T item[N];
};

// Converts through float, which holds every value of the narrower types; 64-bit values are only
// copied.
template <typename T, typename S>
__device__ inline T convert(S value) {
  return static_cast<T>(static_cast<float>(value));
}
template <>
__device__ inline long long convert<long long, long long>(long long value) {
  return value;
}
template <>
__device__ inline int convert<int, int>(int value) {
  return value;
}

template <int N, typename T>
__device__ inline Vector<T, N> load(const T* base) {
  return *reinterpret_cast<const Vector<T, N>*>(base);
}

template <int N, typename T>
__device__ inline void store(T* base, const Vector<T, N>& values) {
  *reinterpret_cast<Vector<T, N>*>(base) = values;
}

template <int N, typename T, typename Index>
__device__ inline Vector<T, N> load(const T* base, Index index, Index count) {
  if (index + N <= count) return load<N>(base + index);
  Vector<T, N> values;
  for (int k = 0; k < N; ++k) {
    values.item[k] = index + k < count ? base[index + k] : static_cast<T>(0.0f);
  }
  return values;
}

template <int N, typename T, typename Index>
__device__ inline void store(T* base, Index index, Index count, const Vector<T, N>& values) {
  if (index + N <= count) return store<N>(base + index, values);
  for (int k = 0; k < N; ++k) {
    if (index + k < count) base[index + k] = values.item[k];
  }
}

// Where a thread begins in a tensor that all blocks iterate over together, and its step.
template <int N, typename Index>
__device__ inline Index first_index() {
  return (static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
}
template <int N, typename Index>
__device__ inline Index step() {
  return static_cast<Index>(gridDim.x) * blockDim.x * N;
}
