// The state of a training in a file, by the names of the protocol's `save`: parameter/NAME,
// buffer/NAME, momentum/NAME and square/NAME, where NAME is the name in the state dict; Adam's steps
// as steps/steps; the loss scale as scaler/scale and scaler/good_steps.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/full.h>

#include "placement.h"
#include "program.h"
#include "safetensors.h"

namespace golow {

/// Copies of everything that training changes.
inline safetensors::Tensors saved_state(const Program& program, const Placement& placement) {
  safetensors::Tensors state;
  for (const Parameter* parameter : program.parameters) {
    state["parameter/" + parameter->name] = placement.stored(*parameter);
    if (parameter->momentum.defined())
      state["momentum/" + parameter->name] = placement.stored(parameter->momentum);
    if (parameter->square.defined())
      state["square/" + parameter->name] = placement.stored(parameter->square);
  }
  if (program.steps > 0) state["steps/steps"] = at::full({}, program.steps, at::kFloat);
  for (const Buffer* buffer : program.buffers)
    state["buffer/" + buffer->name] = placement.stored(*buffer);
  if (program.loss_scale) {
    state["scaler/scale"] = at::full({1}, program.loss_scale->value, at::kFloat);
    state["scaler/good_steps"] = at::full({1}, program.loss_scale->good_steps, at::kInt);
  }
  return state;
}

/// Load the state in that file into the program. What an optimizer keeps and the file lacks becomes
/// zero, a missing loss scale becomes `settled`; a program for inference takes neither. A file that does
/// not fit changes nothing.
inline void restore_state(Program& program, const Placement& placement, const std::string& path,
                          std::optional<LossScale> settled) {
  const safetensors::Tensors state = safetensors::read(path);
  const auto placed = [&](const std::string& name, const Tensor& like) {
    const auto found = state.find(name);
    if (found == state.end()) return Tensor();
    const Tensor tensor = placement.cast(placement.moved(found->second));
    if (tensor.sizes() != like.sizes() || tensor.scalar_type() != like.scalar_type())
      throw std::runtime_error(path + ": " + name + " is not of the program's shape and dtype");
    return tensor;
  };
  std::vector<std::pair<Tensor*, Tensor>> given;
  const auto give = [&](const std::string& kind, auto& entry) {
    Tensor tensor = placed(kind + entry.name, entry);
    if (!tensor.defined()) throw std::runtime_error(path + " has no tensor " + kind + entry.name);
    given.emplace_back(&entry, std::move(tensor));
  };
  for (Parameter* parameter : program.parameters) {
    give("parameter/", *parameter);
    if (!program.trains) continue;
    given.emplace_back(&parameter->momentum, placed("momentum/" + parameter->name, *parameter));
    given.emplace_back(&parameter->square, placed("square/" + parameter->name, *parameter));
  }
  for (Buffer* buffer : program.buffers) give("buffer/", *buffer);
  const auto scale = state.find("scaler/scale"), good_steps = state.find("scaler/good_steps");
  if (settled && scale != state.end() && good_steps != state.end())
    settled = {scale->second.item().toDouble(), good_steps->second.item().toInt()};
  program.loss_scale = settled;
  const auto steps = state.find("steps/steps");
  program.steps = steps == state.end() ? 0 : steps->second.item().toDouble();
  for (auto& [target, tensor] : given) *target = std::move(tensor);
}

}  // namespace golow
