// Blocks of threads that iterate over rows of channels, and clusters of blocks. Included after
// vectors.cuh: images are NHWC in memory, so adjacent channels of a pixel form one vector.

// Relu is [0, infinity], no activation is [-infinity, infinity]. NaN passes through, as in PyTorch.
__device__ inline float clipped(float value, float low, float high) {
  return value < low ? low : value > high ? high : value;
}

// Batch norm of a value before residual and activation. Forward and backward share this and its
// rounding, so that backward reproduces the result exactly.
__device__ inline float normalized(float x, float center, float factor, float offset) {
  return fmaf(x - center, factor, offset);
}

// Whether a stored result was not clipped; NaN was not. The limits are rounded to storage too. A
// missing limit is NaN: no comparison with it holds, so infinity does not count as clipped.
__device__ inline bool passes(float result, float low, float high) {
  return !(result <= low || result >= high);
}

// ------------------------------------------------------------ iterating over rows

// First row and end row of a thread, the distance between its rows, and its first channel.
struct Walk { int first, last, step, channel; };

template <int V> __device__ Walk walk(int part, int parts, int tile, int rows) {
  const int size = (rows + parts - 1) / parts;
  const long long start = (long long)part * size;
  const int last = (int)min(start + size, (long long)rows);
  return {(int)min(start + threadIdx.y, (long long)rows), last, (int)blockDim.y,
          (int)(tile * blockDim.x + threadIdx.x) * V};
}

// The sum over the lanes of a warp that have the same channels; every lane gets the sum.
__device__ inline float sum_of_lanes(float value) {
  for (int distance = blockDim.x; distance < 32; distance *= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// ------------------------------------------------------------ clusters of blocks

// Before sm_90, a cluster is a single block.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTER_OF(blocks)
#define CLUSTER_ARRIVE()
#define CLUSTER_WAIT()
#define OF_BLOCK(address, rank) (address)
#else
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)
#define CLUSTER_ARRIVE() __cluster_barrier_arrive()
#define CLUSTER_WAIT() __cluster_barrier_wait()
#define OF_BLOCK(address, rank) \
  static_cast<float*>(__cluster_map_shared_rank(const_cast<float*>(address), rank))
#endif

