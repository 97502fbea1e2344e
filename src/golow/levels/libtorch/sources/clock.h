// Points in time: of the CPU by its monotonic clock (by the same rule as golow/worker/clock.py), of
// a GPU by events on its stream.
//
// A GPU is reached through PyTorch's device-independent interfaces, so that no CUDA header is
// needed and the same program text serves a PyTorch with CUDA and one without.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace golow {

/// Nanoseconds of the monotonic clock.
inline std::int64_t nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// Wait until a GPU has done all enqueued work; on a CPU there is nothing to wait for.
inline void synchronize(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

/// A fixed number of points in a device's time, recorded in any order.
class Timeline {
 public:
  Timeline(c10::Device device, std::size_t points) : device_(device) {
    if (device.is_cpu()) {
      host_.resize(points);
      return;
    }
    for (std::size_t point = 0; point < points; ++point) {
      events_.emplace_back(device.type(), c10::EventFlag::BACKEND_DEFAULT);
      record(point);  // the first record creates the event, which must not be timed
    }
  }

  /// Record a point: on a CPU now, on a GPU when it has done the work enqueued before.
  void record(std::size_t point) {
    if (device_.is_cpu())
      host_[point] = nanoseconds();
    else
      events_[point].record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }

  /// Nanoseconds from one point to another; on a GPU only after `synchronize`.
  std::int64_t between(std::size_t first, std::size_t second) const {
    if (device_.is_cpu()) return host_[second] - host_[first];
    return std::llround(events_[first].elapsedTime(events_[second]) * 1e6);
  }

 private:
  c10::Device device_;
  std::vector<std::int64_t> host_;
  std::vector<c10::Event> events_;
};

}  // namespace golow
