// All batches of an input are consecutive in device memory, and an integer there is the index of the
// current one. So one CUDA graph serves every batch: the host writes one word before the launch.

template <typename S>
__device__ const S* current(const S* base, const int* position, size_t batch) {
  return base + static_cast<size_t>(*position) * batch;
}
