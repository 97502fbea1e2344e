// A stored element as the value that formulas compute with, and back, and arithmetic of integers as in
// PyTorch. Included before kernels with generated formulas.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ inline float plain(float value) { return value; }
__device__ inline float plain(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float plain(__half value) { return __half2float(value); }
__device__ inline long long plain(long long value) { return value; }
__device__ inline long long plain(int value) { return value; }
__device__ inline long long plain(unsigned char value) { return value; }
__device__ inline long long plain(bool value) { return value; }

template <typename Y, typename C>
struct Stored {
  __device__ static Y of(C value) { return static_cast<Y>(value); }
};
template <typename C>
struct Stored<__nv_bfloat16, C> {
  __device__ static __nv_bfloat16 of(C value) {
    return __float2bfloat16(static_cast<float>(value));
  }
};
template <typename C>
struct Stored<__half, C> {
  __device__ static __half of(C value) { return __float2half(static_cast<float>(value)); }
};
template <typename C>
struct Stored<bool, C> {
  __device__ static bool of(C value) { return value != 0; }
};

// Division that rounds down, and what it leaves, which has the sign of the divisor.
__device__ inline float floor_mod(float a, float b) {
  const float rest = fmodf(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ inline long long floor_mod(long long a, long long b) {
  const long long rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
__device__ inline float floor_div(float a, float b) {
  const float whole = (a - floor_mod(a, b)) / b;
  return b == 0 ? a / b : rintf(whole);
}
__device__ inline long long floor_div(long long a, long long b) {
  return (a - floor_mod(a, b)) / b;
}
__device__ inline long long power(long long a, long long b) {
  long long result = 1;
  for (; b > 0; b /= 2, a *= a) {
    if (b % 2) result *= a;
  }
  return b < 0 ? 0 : result;
}
// An index may count from the end.
__device__ inline long long wrapped(long long index, long long size) {
  return index < 0 ? index + size : index;
}
