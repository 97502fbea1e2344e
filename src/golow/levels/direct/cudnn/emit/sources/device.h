// The GPU by its driver: memory, a stream, and modules of kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <cuda.h>

#include "failure.h"
#include "tensor_file.h"

namespace golow {

/// Throws Failure if a call of the driver failed. what: the call, or the layer that it is for.
void check(CUresult status, const std::string& what);

/// A tensor of the project's constants.
const StoredTensor& require(const TensorFile& constants, const char* name);

/// A GPU: that of the calling thread's context, or the first one.
class Device {
 public:
  Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  std::string name() const;
  int attribute(CUdevice_attribute wanted) const;
  CUcontext context() const { return context_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool is_retained_ = false;
};

/// The device is the current one of this thread while this object lives.
class Current {
 public:
  explicit Current(const Device& device) : is_pushed_(cuCtxPushCurrent(device.context()) == CUDA_SUCCESS) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    CUcontext popped = nullptr;
    if (is_pushed_) cuCtxPopCurrent(&popped);
  }

 private:
  const bool is_pushed_;  // not while a process ends, where nothing is left to be done
};

/// Memory of the device, which is zero at first.
class Region {
 public:
  explicit Region(std::size_t bytes);
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { cuMemFree(address_); }
  CUdeviceptr address() const { return address_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  CUdeviceptr address_ = 0;
};

class Stream {
 public:
  Stream() { check(cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cuStreamDestroy(handle_); }
  CUstream handle() const { return handle_; }
  /// Copies that return when they are done, after all that was enqueued.
  void upload(CUdeviceptr target, const void* source, std::size_t bytes) const;
  void download(void* target, CUdeviceptr source, std::size_t bytes) const;
  void wait() const { check(cuStreamSynchronize(handle_), "cuStreamSynchronize"); }

 private:
  CUstream handle_ = nullptr;
};

/// Orders work on the same memory, in whatever streams it is.
class Turns {
 public:
  Turns() { check(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"); }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() { cuEventDestroy(event_); }
  void begin(CUstream stream) const { check(cuStreamWaitEvent(stream, event_, 0), "cuStreamWaitEvent"); }
  void end(CUstream stream) const { check(cuEventRecord(event_, stream), "cuEventRecord"); }

 private:
  CUevent event_ = nullptr;
};

/// A kernel: its module among the constants, and its name in the module's code.
struct Kernel {
  const char* module;
  const char* symbol;
};

/// Blocks, threads of a block, and bytes that these share.
struct Launch {
  unsigned blocks[3], threads[3], shared;
};

/// A number that a kernel gets by value.
struct Scalar {
  alignas(8) unsigned char bytes[8] = {};
  template <typename Number>
  Scalar(Number number) {
    static_assert(sizeof number <= sizeof bytes, "a number of at most 8 bytes");
    __builtin_memcpy(bytes, &number, sizeof number);
  }
};

/// The kernels of the project on the device.
class Kernels {
 public:
  /// images: the code of a module, by its name. The device is the current one.
  /// constants: with the modules.
  Kernels(const Device& device, const TensorFile& constants);
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  ~Kernels();

  /// shares: whether its threads share memory whose size is that of a launch.
  CUfunction load(const Kernel& kernel, bool shares);
  void launch(CUfunction function, const Launch& launch, const std::vector<CUdeviceptr>& pointers,
              const std::vector<Scalar>& scalars, CUstream stream, const std::string& what) const;

 private:
  const TensorFile& constants_;
  int most_shared_;
  bool begins_early_;
  std::map<std::string, CUmodule> modules_;
};

}  // namespace golow
