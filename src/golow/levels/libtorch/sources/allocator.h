// The C library's allocator: golow's C++ programs keep the memory that an iteration frees.
//
// By default glibc returns large blocks to the kernel, and each page that comes back is zeroed and
// costs a page fault. A process with PyTorch's Python has a heap that hides this; one without has
// not. docs/use/choices.md has the figures.
#pragma once

#include <cstdlib>
#include <cstring>

#include <malloc.h>

namespace golow {

constexpr int kKept = 1 << 30;  // bytes

/// Whether whoever started the program has tuned the allocator, which then stays as it is.
inline bool allocator_is_tuned() {
  for (const char* name : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
                           "MALLOC_MMAP_MAX_"})
    if (std::getenv(name) != nullptr) return true;
  const char* const tunables = std::getenv("GLIBC_TUNABLES");  // huge pages are another matter
  for (const char* name : {"malloc.trim_threshold", "malloc.mmap_", "malloc.top_pad"})
    if (tunables != nullptr && std::strstr(tunables, name) != nullptr) return true;
  return false;
}

/// Keep up to 1 GiB of freed memory in the process; whether that is in effect now.
inline bool keep_memory() {
#ifdef __GLIBC__
  return !allocator_is_tuned() && mallopt(M_TRIM_THRESHOLD, kKept) == 1 &&
         mallopt(M_MMAP_THRESHOLD, kKept) == 1;
#else
  return false;
#endif
}

}  // namespace golow
