// The GPU and the libraries that plans were chosen for.
#pragma once

#include <cstddef>

#include "device.h"

namespace golow {

/// A GPU, its compute capability and multiprocessors, and versions of the libraries, 0 for one that no
/// plan needs.
struct Target {
  const char* gpu;
  int major, minor, multiprocessors;
  std::size_t cudnn, cublas;
};

/// Throws Failure for another GPU and for another version of a library. program: its name.
void require_target(const char* program, const Target& target, const Device& device);

}  // namespace golow
