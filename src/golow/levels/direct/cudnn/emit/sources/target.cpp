#include "target.h"

#include <string>

#include "libraries.h"

namespace golow {
namespace {

void require_gpu(const char* program, const Target& target, const Device& device) {
  const int major = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = device.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  const int multiprocessors = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  if (major == target.major && minor == target.minor && multiprocessors >= target.multiprocessors) return;
  const auto words = [](const std::string& name, int major, int minor, int count) {
    return name + " (sm_" + std::to_string(major) + std::to_string(minor) + ", " + std::to_string(count) +
           " multiprocessors)";
  };
  throw Failure(Status::library, "the GPU is " + words(device.name(), major, minor, multiprocessors) + "; " +
                                     program + " was written for " +
                                     words(target.gpu, target.major, target.minor, target.multiprocessors) +
                                     ": write it again here with golow emit");
}

}  // namespace

void require_target(const char* program, const Target& target, const Device& device) {
  require_gpu(program, target, device);
  require_versions(program, target.cudnn, target.cublas);
}

}  // namespace golow
