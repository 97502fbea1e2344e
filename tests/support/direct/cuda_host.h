// What golow's kernels need of CUDA, on this processor; `cuda_host.cpp` runs their threads.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// What each block has alone. Where blocks run at once, each is a thread of this processor.
#ifdef SIDE_BY_SIDE
#define BLOCK_LOCAL __thread
#else
#define BLOCK_LOCAL
#endif
#define __shared__ static BLOCK_LOCAL
#define __cluster_dims__(...)
#define LET_NEXT_KERNEL_BEGIN()
#define WAIT_FOR_KERNEL_BEFORE()
// Clusters of one block.
inline void __cluster_barrier_arrive() {}
inline void __cluster_barrier_wait() {}
inline void* __cluster_map_shared_rank(void* address, unsigned) { return address; }
struct Dim { unsigned x, y, z; };
extern BLOCK_LOCAL Dim threadIdx, blockIdx;
extern Dim blockDim, gridDim;
extern BLOCK_LOCAL char shared_memory[];

// ------------------------------------------------------------ arithmetic

using std::max;
using std::min;
inline float __int_as_float(unsigned bits) { float f; memcpy(&f, &bits, 4); return f; }
inline float __uint_as_float(unsigned bits) { return __int_as_float(bits); }
inline unsigned __float_as_uint(float value) { unsigned b; memcpy(&b, &value, 4); return b; }
// Threads and blocks run one after the other: what one wrote, the next one sees.
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

template <typename T> inline T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
inline void __threadfence() {}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<uint64_t>(a) * b >> 32;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __fdividef(float x, float y) { return x / y; }
// Conversions round to nearest even, as the GPU's do.
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    uint32_t b; memcpy(&b, &value, 4);
    bits = std::isnan(value) ? 0x7fff : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  }
  operator float() const { return __int_as_float(static_cast<unsigned>(bits) << 16); }
};
using __half = _Float16;
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __half __float2half(float value) { return static_cast<__half>(value); }

// ------------------------------------------------------------ threads of a block

enum Wait { NOTHING, WARP, BLOCK, OTHERS, ENDED };  // OTHERS: blocks
extern BLOCK_LOCAL unsigned running;  // the thread's number in its block
void wait_for(Wait wait);
inline void __syncthreads() { wait_for(BLOCK); }
inline void __syncwarp(unsigned = 0xffffffff) { wait_for(WARP); }

// The value of another lane. What was written is read by all before anyone writes again.
template <typename T> inline T of_lane(T value, unsigned lane) {
  static BLOCK_LOCAL T given[1024];
  const unsigned self = running;
  given[self] = value;
  wait_for(WARP);
  const T found = given[self / 32 * 32 + lane % 32];
  wait_for(WARP);
  return found;
}
template <typename T> inline T __shfl_xor_sync(unsigned, T value, int mask) {
  return of_lane(value, running % 32 ^ mask);
}
template <typename T> inline T __shfl_sync(unsigned, T value, int lane) {
  return of_lane(value, lane);
}
template <typename T> inline T __shfl_down_sync(unsigned, T value, int distance) {
  const unsigned lane = running % 32;
  return of_lane(value, lane + distance < 32 ? lane + distance : lane);
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __ballot_sync(unsigned mask, bool given) {
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= of_lane<unsigned>(given, lane) << lane;
  return bits & mask;
}
inline int __syncthreads_or(int value) {
  static BLOCK_LOCAL int given[1024];
  given[running] = value;
  wait_for(BLOCK);
  int any = 0;
  for (unsigned t = 0; t < blockDim.x * blockDim.y * blockDim.z; ++t) any |= given[t];
  wait_for(BLOCK);
  return any;
}

// ------------------------------------------------------------ the launch

extern void (*kernel)(void**);
// Runs a grid. together: whether the threads of a block wait for one another. Returns how many
// blocks waited for others in vain.
int run_grid(const unsigned* grid, const unsigned* block, void** arguments, bool together);

template <typename... P, size_t... I>
void call(void (*function)(P...), void** arguments, std::index_sequence<I...>) {
  function(*static_cast<P*>(arguments[I])...);
}
template <typename... P> void call(void (*function)(P...), void** arguments) {
  call(function, arguments, std::index_sequence_for<P...>());
}
// The bytes of each parameter; returns how many there are.
template <typename... P> int sizes_of(void (*)(P...), unsigned* sizes) {
  const unsigned all[] = {sizeof(P)..., 0};
  memcpy(sizes, all, sizeof...(P) * sizeof(unsigned));
  return sizeof...(P);
}
