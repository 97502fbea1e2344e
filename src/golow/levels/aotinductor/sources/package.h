// The network in a package of AOTInductor as a program of libtorch's worker.
//
// Everything that depends on the network is in the package, which golow names in the environment:
// a folder with the library that Inductor compiled, the GPU's kernels, and golow's description.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/headeronly/version.h>

#include "json.h"
#include "program.h"

namespace golow {

/// What golow wrote beside the library (levels/aotinductor/compilation.py).
struct Description {
  std::string digest;   // of the workload that was compiled
  std::string torch;    // its version; a library fits no other
  std::string library;  // the file's name
  std::int64_t bytes = 0;
  std::vector<std::string> updated;  // the buffers that a pass changes
};

inline Description read_description(const std::string& folder) {
  const std::string path = folder + "/package.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("there is no package: " + path + " cannot be opened");
  std::ostringstream text;
  text << file.rdbuf();
  try {
    const json::Value value = json::parse(text.str());
    Description found{value.at("digest").string(), value.at("torch").string(),
                      value.at("library").string(), value.at("bytes").integer(), {}};
    for (const json::Value& name : value.at("updated").array())
      found.updated.push_back(name.string());
    return found;
  } catch (const json::Error& error) {
    throw json::Error(path + ": " + error.what());
  }
}

/// The folder of the package, by golow.levels.peers.exported_program.VARIABLE.
inline std::string package_folder() {
  const char* const folder = std::getenv("GOLOW_EXPORTED");
  if (folder == nullptr || *folder == '\0')
    throw std::runtime_error("GOLOW_EXPORTED names no package");
  return folder;
}

/// A network that runs as Inductor compiled it. Its weights are in the package.
class Package : public Program {
 public:
  Package()
      : Program(/*trains=*/false),
        folder_(package_folder()),
        description_(read_description(folder_)) {
    if (description_.torch != TORCH_VERSION)
      throw unusable("it was compiled with torch " + description_.torch + ", and this is torch " +
                     TORCH_VERSION);
    struct stat library {};
    const std::string path = folder_ + "/" + description_.library;
    const bool found = stat(path.c_str(), &library) == 0;
    // Loading less than the whole would end the process.
    if (!found || library.st_size != description_.bytes)
      throw unusable(description_.library + " has " +
                     std::to_string(found ? std::int64_t{library.st_size} : 0) + " of " +
                     std::to_string(description_.bytes) + " bytes");
  }

  std::string workload() const override { return description_.digest; }

  std::string indivisible() const override {
    return "Inductor has fused its layers into generated kernels";
  }

  void reset(at::Device device) override {
    if (runner_ == nullptr) open(device);
    for (const auto& [buffer, initial] : changed_) buffer.copy_(initial);
  }

  void step(const Batch& batch, Result& result) override {
    try {
      result.outputs = runner_->run(batch.inputs);
    } catch (const std::exception& error) {
      // Inductor calls PyTorch through C, where the allocator's words are lost.
      if (failed_allocations() == failed_before_) throw;
      failed_before_ = failed_allocations();
      throw std::runtime_error(std::string("the GPU is out of memory: ") + error.what());
    }
  }

 private:
  /// How often PyTorch's allocator had no memory on the GPU; it does not count on a CPU.
  std::int64_t failed_allocations() const {
    return on_cpu_ ? 0 : at::getDeviceAllocator(at::kCUDA)->getDeviceStats(0).num_ooms;
  }

  std::runtime_error unusable(const std::string& reason) const {
    return std::runtime_error("the package in " + folder_ + " cannot be used: " + reason +
                              "; remove that folder, and golow compiles it again");
  }

  void open(at::Device device) {
    on_cpu_ = device.is_cpu();
    failed_before_ = failed_allocations();
    const std::string name = device.is_cpu() ? "cpu" : "cuda";
    const auto& runners = torch::inductor::getAOTIModelRunnerRegistry();
    const auto create = runners.find(name);
    if (create == runners.end())
      throw unusable("torch " TORCH_VERSION " has no runner for the device " + name);
    try {
      // One thread runs it, so that it needs neither locks nor events, and can be recorded.
      runner_ = create->second(folder_ + "/" + description_.library, /*num_models=*/1, name,
                               folder_, /*run_single_threaded=*/true);
    } catch (const std::exception& error) {
      const std::string reason = error.what();  // torch's errors go on with a backtrace
      if (reason.find("out of memory") != std::string::npos) throw;
      throw unusable(reason.substr(0, reason.find('\n')));
    }
    const auto constants = runner_->extract_constants_map(/*use_inactive=*/false);
    for (const std::string& name_of_buffer : description_.updated) {
      const auto found = constants.find(name_of_buffer);
      if (found == constants.end()) throw unusable("it has no buffer " + name_of_buffer);
      changed_.emplace_back(found->second, found->second.clone());
    }
  }

  std::string folder_;
  Description description_;
  bool on_cpu_ = true;
  std::int64_t failed_before_ = 0;
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner_;
  std::vector<std::pair<Tensor, Tensor>> changed_;  // buffers that a pass changes, and their values
};

}  // namespace golow
