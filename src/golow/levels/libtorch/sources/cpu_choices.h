// The choices of a CPU that this program can make otherwise, and those whose value it can read, by
// the names in golow/levels/choices/.
#pragma once

#include <algorithm>
#include <string>

#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "choice_tables.h"

namespace golow {

/// The file of the library whose function of this name the process uses.
inline std::string provider(const char* symbol) {
  void* const function = dlsym(RTLD_DEFAULT, symbol);
  Dl_info place{};
  if (function == nullptr || dladdr(function, &place) == 0) return "";
  const std::string path = place.dli_fname;
  return path.substr(path.rfind('/') + 1);
}

constexpr std::size_t kBlock = std::size_t{64} << 20;  // bytes; more than glibc's thresholds grow to

/// Whether a block that is allocated and freed now goes back to the kernel.
inline bool returns_a_block() {
  constexpr std::size_t kByMmap = 2;  // in the size field before a block (glibc's malloc.c)
  void* const block = std::malloc(kBlock);
  const bool mapped = (static_cast<volatile std::size_t*>(block)[-1] & kByMmap) != 0;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  std::free(block);
  return mapped || reinterpret_cast<std::uintptr_t>(sbrk(0)) < end;
}

inline std::string allocator() {
  const std::string library = provider("malloc");
  for (const char* other : {"jemalloc", "tcmalloc", "mimalloc"})
    if (library.rfind(std::string("lib") + other, 0) == 0) return other;
  return returns_a_block() ? "glibc, returns memory" : "glibc, keeps memory";
}

/// Whether the mapping with that address has the flag `hg` (proc_pid_smaps(5)).
inline bool is_advised(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t start = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> start >> dash >> end && dash == '-')
      inside = start <= wanted && wanted < end;
    else if (inside && line.rfind("VmFlags:", 0) == 0)
      return line.find(" hg") != std::string::npos;
  }
  return false;
}

inline std::string huge_pages() {
  std::string mode;
  if (!std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), mode))
    return "the kernel has none";
  const std::size_t first = mode.find('[') + 1;
  mode = mode.substr(first, mode.find(']') - first);
  if (mode != "madvise") return mode + ", by the kernel";
  char* const block = static_cast<char*>(std::malloc(kBlock));
  const bool asked = is_advised(block + kBlock / 2);
  std::free(block);
  if (asked) return "the C library asks";
  const at::Tensor tensor = at::empty({std::int64_t{kBlock}}, at::kByte);
  const char* const data = static_cast<const char*>(tensor.const_data_ptr());
  return is_advised(data + kBlock / 2) ? "PyTorch asks" : "nobody asks for them";
}

/// Threads of one operation, relative to those that the program was started with.
inline std::string threads(int given) {
  const int found = at::get_num_threads();
  if (found == given) return "as given";
  if (found == 1) return "one";
  if (found == given / 2) return "half of those given";
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) == 0 && found == CPU_COUNT(&usable))
    return "one a logical CPU";
  return std::to_string(found);
}

inline int given_threads() {
  static const int given = at::get_num_threads();
  return given;
}

inline std::string openmp_binding() {
  using Function = int (*)();
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, "omp_get_proc_bind"));
  if (function == nullptr) return "unknown";
  const char* const names[] = {"off", "on", "primary", "close", "spread"};
  const int found = function();
  return found >= 0 && found <= 4 ? names[found] : "unknown";
}

inline std::string openmp_library() {
  const std::string library = provider("omp_get_max_threads");
  for (const char* known : {"libgomp", "libiomp5", "libomp"})
    if (library.rfind(known, 0) == 0) return known;
  return library.empty() ? "none" : library;
}

inline std::string environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == 0 ? otherwise : value;
}

/// What multiplying numbers below float32's full precision by one gives, in all threads.
inline std::string denormals() {
  constexpr std::int64_t count = 1 << 20;
  const at::Tensor product = at::full({count}, 1e-40, at::kFloat).mul(at::ones({count}));
  const auto* const bits = static_cast<const std::int32_t*>(product.const_data_ptr());
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) zeros += bits[i] == 0;
  if (zeros == 0) return "kept";
  return zeros == count ? "flushed to zero" : "flushed to zero in some threads";
}

/// What is set before a workload is loaded; by the names of the alternatives.
inline const Setters& cpu_setters() {
  const auto by_environment = [] {};  // the process was started with it
  static const Setters setters{
      {"bind_close", by_environment},
      {"bind_spread", by_environment},
      {"flush_denormals", [] { at::globalContext().setFlushDenormal(true); }},
      {"jemalloc", by_environment},
      {"malloc_huge_pages", by_environment},
      {"malloc_keep", by_environment},
      {"mimalloc", by_environment},
      {"onednn_cache_off", by_environment},
      {"onednn_off", [] { at::globalContext().setUserEnabledMkldnn(false); }},
      {"openmp_intel", by_environment},
      {"tcmalloc", by_environment},
      {"threads_all",
       [] {
         cpu_set_t usable;
         if (sched_getaffinity(0, sizeof usable, &usable) == 0)
           at::set_num_threads(CPU_COUNT(&usable));
       }},
      {"threads_half", [] { at::set_num_threads(std::max(1, given_threads() / 2)); }},
      {"threads_one", [] { at::set_num_threads(1); }},
      {"torch_huge_pages", by_environment},
      {"wait_active", by_environment},
      {"wait_passive", by_environment},
  };
  return setters;
}

/// The values in effect, by the names of the choices.
inline const Readers& cpu_readers() {
  static const Readers readers{
      {"allocator", allocator},
      {"denormals", denormals},
      {"huge_pages", huge_pages},
      {"onednn_kernel_cache",
       [] { return environment("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1024"); }},
      {"onednn_used",
       [] { return std::string(at::globalContext().userEnabledMkldnn() ? "on" : "off"); }},
      {"openmp_binding", openmp_binding},
      {"openmp_library", openmp_library},
      {"openmp_threads", [] { return threads(given_threads()); }},
      {"openmp_waiting",
       [] {
         return environment("OMP_WAIT_POLICY", "the library's own: spin a while, then sleep");
       }},
  };
  return readers;
}

}  // namespace golow
