#include "memory.h"

#include <algorithm>
#include <string>

#include <omp.h>
#include <sys/mman.h>

#include "failure.h"

namespace golow {

Region::Region(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED)
    throw Failure(Status::memory, "there is no room for " + std::to_string(bytes) + " bytes");
  madvise(data_, bytes_, MADV_HUGEPAGE);  // where the system has none, small pages do
}

Region::~Region() { munmap(data_, bytes_); }

Threads::Threads(int number) : before_(omp_get_max_threads()) { omp_set_num_threads(number); }
Threads::~Threads() { omp_set_num_threads(before_); }

}  // namespace golow
