#include "device.h"

#include <algorithm>

namespace golow {
namespace {

constexpr std::size_t kSmallest = 256;
// From this compute capability on, a kernel may begin before the one before it has ended.
constexpr int kFirstWithEarlyLaunch = 9;

}  // namespace

void check(CUresult status, const std::string& what) {
  if (status == CUDA_SUCCESS) return;
  const char* name = nullptr;
  if (cuGetErrorName(status, &name) != CUDA_SUCCESS) name = "an unknown error";
  throw Failure(status == CUDA_ERROR_OUT_OF_MEMORY ? Status::memory : Status::library,
                what + ": the GPU's driver: " + name);
}

const StoredTensor& require(const TensorFile& constants, const char* name) {
  const StoredTensor* const found = constants.find(name);
  if (found == nullptr) throw Failure(Status::internal, std::string("there is no ") + name);
  return *found;
}

Device::Device() {
  check(cuInit(0), "there is no GPU");
  check(cuCtxGetCurrent(&context_), "cuCtxGetCurrent");
  if (context_ != nullptr) {
    check(cuCtxGetDevice(&device_), "cuCtxGetDevice");
    return;
  }
  check(cuDeviceGet(&device_, 0), "there is no GPU");
  check(cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  is_retained_ = true;
}

Device::~Device() {
  if (is_retained_) cuDevicePrimaryCtxRelease(device_);
}

std::string Device::name() const {
  char text[256] = {};
  check(cuDeviceGetName(text, sizeof text - 1, device_), "cuDeviceGetName");
  return text;
}

int Device::attribute(CUdevice_attribute wanted) const {
  int value = 0;
  check(cuDeviceGetAttribute(&value, wanted, device_), "cuDeviceGetAttribute");
  return value;
}

Region::Region(std::size_t bytes) : bytes_(std::max(bytes, kSmallest)) {
  const CUresult status = cuMemAlloc(&address_, bytes_);
  if (status == CUDA_ERROR_OUT_OF_MEMORY)
    throw Failure(Status::memory, "the GPU has no room for " + std::to_string(bytes_) + " bytes");
  check(status, "cuMemAlloc");
  check(cuMemsetD8(address_, 0, bytes_), "cuMemsetD8");
  check(cuCtxSynchronize(), "cuCtxSynchronize");  // streams do not wait for it
}

void Stream::upload(CUdeviceptr target, const void* source, std::size_t bytes) const {
  if (bytes == 0) return;
  check(cuMemcpyHtoDAsync(target, source, bytes, handle_), "cuMemcpyHtoDAsync");
  wait();
}

void Stream::download(void* target, CUdeviceptr source, std::size_t bytes) const {
  if (bytes == 0) return;
  check(cuMemcpyDtoHAsync(target, source, bytes, handle_), "cuMemcpyDtoHAsync");
  wait();
}

// ---------------------------------------------------------------- kernels

Kernels::Kernels(const Device& device, const TensorFile& constants)
    : constants_(constants),
      most_shared_(device.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
      begins_early_(device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) >= kFirstWithEarlyLaunch) {}

Kernels::~Kernels() {
  for (const auto& [name, module] : modules_) cuModuleUnload(module);
}

CUfunction Kernels::load(const Kernel& kernel, bool shares) {
  const std::string what = std::string(kernel.module) + ": " + kernel.symbol;
  CUmodule& module = modules_[kernel.module];
  if (module == nullptr) {
    const StoredTensor& image = require(constants_, kernel.module);
    const std::vector<char> aligned(image.data, image.data + image.bytes);
    check(cuModuleLoadData(&module, aligned.data()), what);
  }
  CUfunction function = nullptr;
  check(cuModuleGetFunction(&function, module, kernel.symbol), what);
  if (shares) {
    // All that a multiprocessor has beside what the code declares, so that two such kernels run side by side.
    int declared = 0;
    check(cuFuncGetAttribute(&declared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function), what);
    const int most = most_shared_ - declared;
    check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most), what);
    check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100), what);
  }
  return function;
}

void Kernels::launch(CUfunction function, const Launch& launch, const std::vector<CUdeviceptr>& pointers,
                     const std::vector<Scalar>& scalars, CUstream stream, const std::string& what) const {
  std::vector<void*> parameters;
  for (const CUdeviceptr& pointer : pointers) parameters.push_back(const_cast<CUdeviceptr*>(&pointer));
  for (const Scalar& scalar : scalars) parameters.push_back(const_cast<unsigned char*>(scalar.bytes));
  CUlaunchAttribute early = {};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = launch.blocks[0], config.gridDimY = launch.blocks[1], config.gridDimZ = launch.blocks[2];
  config.blockDimX = launch.threads[0], config.blockDimY = launch.threads[1];
  config.blockDimZ = launch.threads[2];
  config.sharedMemBytes = launch.shared, config.hStream = stream;
  config.attrs = &early, config.numAttrs = begins_early_ ? 1 : 0;
  check(cuLaunchKernelEx(&config, function, parameters.data(), nullptr), what);
}

}  // namespace golow
