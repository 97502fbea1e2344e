// The choices that exist on a GPU alone: a table of how each alternative is set, and one of how each
// value in effect is read. The names and words are those of golow/levels/choices/.
//
// They are set after the workload is loaded: there is a context then, and the workload's precision
// has set its own flags.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <dlfcn.h>

#include <ATen/Context.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "choice_tables.h"

namespace golow {

// ---------------------------------------------------------------- CUDA's driver

/// A function of the driver's library, which is loaded if there is a GPU; null if it has none of
/// that name. PyTorch's headers for CUDA would need CUDA's own.
template <typename Function>
Function* driver_function(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

constexpr int kStackSize = 0, kEagerLoading = 1, kLazyLoading = 2;  // cuda.h
constexpr std::size_t kDriversStack = 1024;                         // bytes
constexpr const char* kUnknown = "the driver does not say";

inline std::string modules_are_loaded() {
  int mode = 0;
  const auto ask = driver_function<int(int*)>("cuModuleGetLoadingMode");
  if (ask == nullptr || ask(&mode) != 0) return kUnknown;
  return mode == kEagerLoading ? "at the start" : mode == kLazyLoading ? "at the first use" : kUnknown;
}

inline std::string stacks() {
  std::size_t size = 0;
  const auto ask = driver_function<int(std::size_t*, int)>("cuCtxGetLimit");
  if (ask == nullptr || ask(&size, kStackSize) != 0) return kUnknown;
  return size >= kDriversStack ? "1 KiB or more for each thread" : "what the kernels need";
}

inline void reserve_no_stacks() {
  const auto set = driver_function<int(int, std::size_t)>("cuCtxSetLimit");
  if (set == nullptr || set(kStackSize, 0) != 0)
    throw std::runtime_error("the driver does not change the size of its stacks");
}

// ---------------------------------------------------------------- PyTorch

/// Whether sums may be rounded: a flag in some versions of PyTorch, one of three options in others.
template <typename Option>
bool may_be_reduced(Option option) {
  if constexpr (std::is_same_v<Option, bool>)
    return option;
  else
    return option == Option::AllowReducedPrecisionWithSplitK;
}

inline std::string benchmarks() {
  const at::Context& context = at::globalContext();
  if (!context.benchmarkCuDNN()) return "off";
  const int limit = context.benchmarkLimitCuDNN();
  return limit == 0 ? "on, all algorithms"
                    : "on, up to " + std::to_string(limit) + " algorithms";
}

/// The allocator, as it has read its settings. The weights are on the device by now: a cache that
/// holds no memory is none.
inline std::string device_allocator() {
  const std::string settings = c10::CachingAllocator::getAllocatorSettings();
  if (settings.find("backend:cudaMallocAsync") != std::string::npos)
    return "CUDA's pool (cudaMallocAsync)";
  if (at::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).reserved_bytes[0].current == 0)
    return "not cached";
  return settings.empty() ? "cached" : "cached, " + settings;
}

/// What the environment asks for where no function returns what it led to; the default if nothing.
inline std::string from_environment(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

/// The value in effect, by choice.
inline const Readers& gpu_readers() {
  static const auto context = []() -> at::Context& { return at::globalContext(); };
  static const auto on = [](bool flag) { return std::string(flag ? "on" : "off"); };
  static const auto tf32 = [](bool flag) { return std::string(flag ? "TF32" : "float32"); };
  static const auto sums = [](bool flag) {
    return std::string(flag ? "may be reduced" : "float32");
  };
  static const Readers readers = {
      {"cudnn_benchmark", benchmarks},
      {"cudnn_deterministic", [] { return on(context().deterministicCuDNN()); }},
      {"cudnn_enabled", [] { return on(context().userEnabledCuDNN()); }},
      {"tf32_products", [] { return tf32(context().allowTF32CuBLAS()); }},
      {"tf32_convolutions", [] { return tf32(context().allowTF32CuDNN()); }},
      {"bf16_reductions", [] { return sums(may_be_reduced(context().allowBF16ReductionCuBLAS())); }},
      {"fp16_reductions", [] { return sums(may_be_reduced(context().allowFP16ReductionCuBLAS())); }},
      {"fp16_accumulation",
       [] {
         return std::string(context().allowFP16AccumulationCuBLAS() ? "float16" : "float32");
       }},
      {"blas_library",
       [] {
         const bool lt = context().blasPreferredBackend() == at::BlasBackend::Cublaslt;
         return std::string(lt ? "cublaslt" : "cublas");
       }},
      {"cublas_workspace",
       [] { return from_environment("CUBLAS_WORKSPACE_CONFIG", "PyTorch's size"); }},
      {"cuda_allocator", device_allocator},
      {"cuda_modules", modules_are_loaded},
      {"cuda_connections", [] { return from_environment("CUDA_DEVICE_MAX_CONNECTIONS", "8"); }},
      {"cuda_launches",
       [] {
         const bool waits = from_environment("CUDA_LAUNCH_BLOCKING", "0") != "0";
         return std::string(waits ? "launches wait" : "launches return");
       }},
      {"cuda_stack", stacks},
  };
  return readers;
}

/// How an alternative is made, by its name; those of the environment need nothing further.
inline const Setters& gpu_setters() {
  static const auto context = []() -> at::Context& { return at::globalContext(); };
  static const auto nothing = [] {};
  static const auto benchmark = [](int limit) {
    context().setBenchmarkCuDNN(true);
    context().setBenchmarkLimitCuDNN(limit);
  };
  static const Setters setters = {
      {"cudnn_benchmark", [] { benchmark(10); }},
      {"cudnn_benchmark_all", [] { benchmark(0); }},
      {"cudnn_deterministic", [] { context().setDeterministicCuDNN(true); }},
      {"no_cudnn", [] { context().setUserEnabledCuDNN(false); }},
      {"tf32_products", [] { context().setAllowTF32CuBLAS(true); }},
      {"ieee_products", [] { context().setAllowTF32CuBLAS(false); }},
      {"tf32_convolutions", [] { context().setAllowTF32CuDNN(true); }},
      {"ieee_convolutions", [] { context().setAllowTF32CuDNN(false); }},
      {"full_bf16_reductions", [] { context().setAllowBF16ReductionCuBLAS(false); }},
      {"full_fp16_reductions", [] { context().setAllowFP16ReductionCuBLAS(false); }},
      {"fp16_accumulation", [] { context().setAllowFP16AccumulationCuBLAS(true); }},
      {"cublaslt", [] { context().setBlasPreferredBackend(at::BlasBackend::Cublaslt); }},
      {"no_cuda_stack", reserve_no_stacks},
      {"cublas_workspace_32m", nothing},
      {"cublas_workspace_128k", nothing},
      {"expandable_segments", nothing},
      {"cuda_malloc_async", nothing},
      {"max_split_128", nothing},
      {"no_cuda_cache", nothing},
      {"eager_modules", nothing},
      {"cuda_connections_1", nothing},
      {"cuda_connections_32", nothing},
      {"launch_blocking", nothing},
  };
  return setters;
}

}  // namespace golow
