// What golow's kernels need of CUDA, on this processor. The threads of a block run one after the
// other, each until it waits for the others of its block or its warp.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
struct Dim { unsigned x, y, z; };
Dim threadIdx, blockIdx, blockDim, gridDim;
alignas(256) char shared_memory[256 << 10];

// ------------------------------------------------------------ arithmetic

using std::max;
using std::min;
inline float __int_as_float(unsigned bits) { float f; memcpy(&f, &bits, 4); return f; }
template <typename T> inline void atomicAdd(T* at, T value) { *at = *at + value; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
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

enum Wait { NOTHING, WARP, BLOCK, ENDED };
struct Thread { ucontext_t context; char* stack; Wait wait; Dim index; };
static std::vector<Thread> threads;
static ucontext_t scheduler;
static unsigned running;
constexpr size_t STACK = 64 << 10;

inline void wait_for(Wait wait) {
  threads[running].wait = wait;
  swapcontext(&threads[running].context, &scheduler);
}
inline void __syncthreads() { wait_for(BLOCK); }
inline void __syncwarp(unsigned = 0xffffffff) { wait_for(WARP); }

// The value of another lane. What was written is read by all before anyone writes again.
template <typename T> inline T of_lane(T value, unsigned lane) {
  static T given[1024];
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

// Lets those go on for whom all others of their group wait; true if there are any.
inline bool release(size_t size, Wait kind) {
  bool any = false;
  for (size_t first = 0; first < threads.size(); first += size) {
    const auto begin = threads.begin() + first;
    const auto end = begin + std::min(size, threads.size() - first);
    if (!std::all_of(begin, end, [=](auto& t) { return t.wait == kind || t.wait == ENDED; })) continue;
    std::for_each(begin, end, [&](auto& t) { if (t.wait == kind) t.wait = NOTHING, any = true; });
  }
  return any;
}

static void (*kernel)(void**);
static void** given_arguments;
static void thread_body() {
  kernel(given_arguments);
  wait_for(ENDED);
}

// Every second round runs backwards: a result that depends on the order of threads is seen.
inline void run_together() {
  threads.resize(blockDim.x * blockDim.y * blockDim.z);
  for (unsigned t = 0; t < threads.size(); ++t) {
    Thread& thread = threads[t];
    if (!thread.stack) thread.stack = static_cast<char*>(malloc(STACK));
    thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    thread.wait = NOTHING;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack;
    thread.context.uc_stack.ss_size = STACK;
    makecontext(&thread.context, thread_body, 0);
  }
  bool backwards = false;
  do {
    for (unsigned k = 0; k < threads.size(); ++k) {
      running = backwards ? threads.size() - 1 - k : k;
      if (threads[running].wait != NOTHING) continue;
      threadIdx = threads[running].index;
      swapcontext(&scheduler, &threads[running].context);
    }
    backwards = !backwards;
  } while (release(32, WARP) || release(threads.size(), BLOCK));
  for (const Thread& thread : threads)
    if (thread.wait != ENDED) fprintf(stderr, "threads of a block wait for ever\n"), abort();
}

// Threads that share nothing need no stacks of their own.
inline void run_alone() {
  for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
    for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(given_arguments);
}

template <typename... P, size_t... I>
void call(void (*function)(P...), void** arguments, std::index_sequence<I...>) {
  function(*static_cast<P*>(arguments[I])...);
}
template <typename... P> void call(void (*function)(P...), void** arguments) {
  call(function, arguments, std::index_sequence_for<P...>());
}

inline void run_grid(const unsigned* grid, const unsigned* block, void** arguments, bool together) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  given_arguments = arguments;
  for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
        together ? run_together() : run_alone();
}
