// Memory of plans, and the threads of a call.
#pragma once

#include <cstddef>

namespace golow {

constexpr std::size_t kCacheLine = 64;
inline std::size_t rounded(std::size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

/// Memory on pages of 2 MiB, if the system grants them.
class Region {
 public:
  explicit Region(std::size_t bytes);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* data_;
  std::size_t bytes_;
};

/// The thread that calls computes with so many threads while this object lives.
class Threads {
 public:
  explicit Threads(int number);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

 private:
  int before_;
};

}  // namespace golow
