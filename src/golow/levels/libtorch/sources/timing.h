// Times iterations with the clock of their device, by the same rule as golow/worker/clock.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include <dlfcn.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "clock.h"

namespace golow {

/// Nanoseconds of each iteration. On a CPU `host` is from the monotonic clock; on a GPU `host` is
/// the time in which the host enqueues the iteration, `device` that in which the GPU executes it.
struct Times {
  std::vector<std::int64_t> host, device;
};

/// Bytes of the GPU's L2 cache, from the driver: PyTorch reports it only to code that is compiled
/// with CUDA's headers.
inline std::int64_t cache_bytes(c10::Device device) {
  constexpr int kCacheSize = 38;  // CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
  using Attribute = int (*)(int* value, int attribute, int device);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  void* const found = driver == nullptr ? nullptr : dlsym(driver, "cuDeviceGetAttribute");
  int bytes = 0;
  if (found == nullptr ||
      reinterpret_cast<Attribute>(found)(&bytes, kCacheSize, device.index()) != 0 || bytes <= 0)
    throw std::runtime_error("the driver does not report the size of the GPU's L2 cache");
  return bytes;
}

/// Flushes the GPU's L2 cache by writing twice its size to memory that it owns.
class CacheFlush {
 public:
  explicit CacheFlush(c10::Device device)
      : memory_(at::empty({2 * cache_bytes(device)}, at::TensorOptions(at::kByte).device(device))) {
  }
  void operator()() { memory_.zero_(); }

 private:
  at::Tensor memory_;
};

/// What happens around every iteration, outside its clock; each gets the iteration's number, counted
/// from the first untimed one. Nothing does, unless it is given.
struct Around {
  std::function<void(std::size_t)> before = [](std::size_t) {}, after = [](std::size_t) {};
};

/// Times iterations on a GPU, enqueued back to back; `flush` runs before each, outside its events.
template <typename Iterate, typename Flush>
Times time_on_gpu(c10::Device device, const Iterate& iterate, Flush&& flush,
                  std::size_t iterations, std::size_t warmup, const Around& around) {
  Times times;
  Timeline events(device, 2 * iterations);
  for (std::size_t i = 0; i < warmup; ++i) {
    around.before(i);
    iterate();
    around.after(i);
  }
  for (std::size_t i = 0; i < iterations; ++i) {
    around.before(warmup + i);
    flush();
    events.record(2 * i);
    const std::int64_t start = nanoseconds();
    iterate();
    times.host.push_back(nanoseconds() - start);
    events.record(2 * i + 1);
    around.after(warmup + i);
  }
  synchronize(device);
  for (std::size_t i = 0; i < iterations; ++i)
    times.device.push_back(events.between(2 * i, 2 * i + 1));
  return times;
}

/// Times of `iterations` calls, after `warmup` untimed ones. cold: flush the GPU's cache before
/// each; a CPU's caches are not flushed.
template <typename Iterate>
Times time_iterations(c10::Device device, const Iterate& iterate, std::size_t iterations,
                      std::size_t warmup, bool cold, const Around& around) {
  if (!device.is_cpu())
    return cold ? time_on_gpu(device, iterate, CacheFlush(device), iterations, warmup, around)
                : time_on_gpu(device, iterate, [] {}, iterations, warmup, around);
  Times times;
  for (std::size_t i = 0; i < warmup + iterations; ++i) {
    around.before(i);
    const std::int64_t start = nanoseconds();
    iterate();
    const std::int64_t spent = nanoseconds() - start;
    if (i >= warmup) times.host.push_back(spent);
    around.after(i);
  }
  return times;
}

}  // namespace golow
