// The network of program.cpp as operators of PyTorch, for a process that has PyTorch loaded.
//
// A handle is a program with tensors of its own; programs of one network share this library.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/library.h>

#include "placement.h"
#include "program.h"

namespace golow {
namespace {

struct Opened {
  std::unique_ptr<Program> program;
  Placement placement;
};

std::mutex lock;
std::map<std::int64_t, std::shared_ptr<Opened>> opened;
std::int64_t next_handle = 0;

std::shared_ptr<Opened> find(std::int64_t handle) {
  const std::lock_guard<std::mutex> held(lock);
  const auto found = opened.find(handle);
  if (found == opened.end()) throw std::invalid_argument("the program is closed");
  return found->second;
}

/// Tensors by the names of the state dict and of constants, on the device and in its precision.
std::int64_t open(std::string device, std::string precision, std::vector<std::string> names,
                  std::vector<Tensor> tensors) {
  const auto made = std::make_shared<Opened>();
  made->program = make_program();
  made->placement = find_placement(device, precision);
  std::map<std::string, Tensor> by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name[names[i]] = tensors.at(i);
  const auto give = [&](auto* entry) {
    const auto found = by_name.find(entry->name);
    if (found == by_name.end()) throw std::runtime_error("there is no tensor " + entry->name);
    static_cast<Tensor&>(*entry) = made->placement.cast(made->placement.moved(found->second));
  };
  for (Parameter* parameter : made->program->parameters) give(parameter);
  for (Buffer* buffer : made->program->buffers) give(buffer);
  for (Constant* constant : made->program->constants) give(constant);
  const std::lock_guard<std::mutex> held(lock);
  opened[next_handle] = made;
  return next_handle++;
}

std::vector<Tensor> step(std::int64_t handle, std::vector<Tensor> inputs) {
  const auto found = find(handle);
  Batch batch;
  batch.inputs = std::move(inputs);
  Result result;
  found->placement.step(*found->program, batch, result);
  return std::move(result.outputs);
}

void close(std::int64_t handle) {
  const std::lock_guard<std::mutex> held(lock);
  opened.erase(handle);
}

}  // namespace
}  // namespace golow

/// Define the operators in the namespace of that name, once.
extern "C" void golow_define(const char* space) {
  static torch::Library library(torch::Library::FRAGMENT, space, std::nullopt, __FILE__, __LINE__);
  library.def("open(str device, str precision, str[] names, Tensor[] tensors) -> int", golow::open);
  library.def("step(int handle, Tensor[] inputs) -> Tensor[]", golow::step);
  library.def("close(int handle) -> ()", golow::close);
}
