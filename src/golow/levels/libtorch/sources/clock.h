// The one clock of the CPU: the twin of golow/worker/clock.py, by the same rule.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace golow {

/// Nanoseconds of the monotonic clock.
inline std::int64_t nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

/// Nanoseconds of each of `iterations` calls, after `warmup` untimed ones.
template <typename Iterate>
std::vector<std::int64_t> time_iterations(const Iterate& iterate, std::int64_t iterations,
                                          std::int64_t warmup) {
  for (std::int64_t i = 0; i < warmup; ++i) iterate();
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < iterations; ++i) {
    const std::int64_t start = nanoseconds();
    iterate();
    samples.push_back(nanoseconds() - start);
  }
  return samples;
}

}  // namespace golow
