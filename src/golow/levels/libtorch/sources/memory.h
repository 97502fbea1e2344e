// The peak bytes that one iteration holds, as ATen's allocator reports them to the profiler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_set>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace golow {

/// Adds up allocations and releases on a device while it listens. Releases of memory that was
/// allocated earlier do not count: an iteration needs what it holds on top of that memory.
class MemoryCounter final : public c10::MemoryReportingInfoBase {
 public:
  explicit MemoryCounter(c10::Device device) : device_(device) {}
  void reportMemoryUsage(void* pointer, std::int64_t change, std::size_t /*allocated*/,
                         std::size_t /*reserved*/, c10::Device device) override {
    if (device.type() != device_.type()) return;
    if (change > 0)
      blocks_.insert(pointer);
    else if (blocks_.erase(pointer) == 0)
      return;
    held_ += change;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  c10::Device device_;
  std::unordered_set<void*> blocks_;
  std::int64_t held_ = 0, peak_ = 0;
};

/// Peak bytes held on the device while `iterate` runs, beyond those held before.
template <typename Iterate>
std::int64_t allocated_peak(c10::Device device, const Iterate& iterate) {
  const auto counter = std::make_shared<MemoryCounter>(device);
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  iterate();
  return counter->peak();
}

}  // namespace golow
