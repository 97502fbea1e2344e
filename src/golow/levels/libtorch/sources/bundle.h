// Reading golow's bundle: workload.json and the tensors of the state and of the batches.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "json.h"
#include "optimizer.h"
#include "placement.h"
#include "program.h"
#include "safetensors.h"

namespace golow {

/// What a program needs to know about the workload.
struct Workload {
  std::string digest;
  bool train = false;
  std::int64_t batch = 0, batches = 0, threads = 0;  // threads: 0 if nobody says
  Optimizer optimizer;
  Placement placement;
  at::ScalarType products = at::kFloat;  // in training: see Program
};

inline std::string text_of(const json::Value& object, const char* name, const char* otherwise) {
  const json::Value* const found = object.find(name);
  return found == nullptr ? otherwise : found->string();
}

inline Optimizer read_optimizer(const json::Value& value) {
  Optimizer optimizer;
  optimizer.name = value.at("name").string();
  optimizer.learning_rate = value.at("learning_rate").number();
  optimizer.momentum = value.at("momentum").number();
  optimizer.weight_decay = value.at("weight_decay").number();
  optimizer.nesterov = value.at("nesterov").boolean();
  const json::Array& betas = value.at("betas").array();
  if (betas.size() != 2) throw json::Error("betas are two numbers");
  optimizer.first_beta = betas[0].number();
  optimizer.second_beta = betas[1].number();
  optimizer.smoothing = value.at("smoothing").number();
  optimizer.epsilon = value.at("epsilon").number();
  const json::Value& clip = value.at("clip");
  if (!clip.is_null()) optimizer.clip = clip.number();
  return optimizer;
}

inline Workload read_workload(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be opened");
  std::ostringstream text;
  text << file.rdbuf();
  try {
    const json::Value value = json::parse(text.str());
    const std::string& mode = value.at("mode").string();
    if (mode != "infer" && mode != "train") throw json::Error("there is no mode " + mode);
    Workload workload;
    workload.digest = text_of(value, "digest", "");
    workload.train = mode == "train";
    workload.batch = value.at("batch").integer();
    if (workload.batch < 1) throw json::Error("a batch has at least one sample");
    workload.batches = value.at("batches").integer();
    if (const json::Value* const threads = value.find("threads")) workload.threads = threads->integer();
    workload.placement = find_placement(text_of(value, "device", "cpu"),
                                        text_of(value, "precision", "default"));
    if (workload.train) {
      workload.products = workload.placement.half.value_or(at::kFloat);
      workload.placement.half.reset();
      workload.optimizer = read_optimizer(value.at("optimizer"));
    }
    return workload;
  } catch (const json::Error& error) {
    throw json::Error(path + ": " + error.what());
  }
}

/// Throws unless the program was built for that workload.
inline void require_match(const Program& program, const Workload& workload) {
  if (workload.train != program.trains)
    throw std::runtime_error("the program was built for another mode than the bundle's");
  if (workload.train && workload.products != program.products)
    throw std::runtime_error("the program was built for another precision than the bundle's");
  if (!program.workload().empty() && program.workload() != workload.digest)
    throw std::runtime_error("the package was compiled for another workload than the bundle's");
}

/// The batches `0/input/0`, `0/target/0`, `1/input/0`, ... of the tensors, on the device.
inline std::vector<Batch> collect_batches(const safetensors::Tensors& tensors, std::int64_t count,
                                          const Placement& placement) {
  std::vector<Batch> batches;
  const auto collect = [&](const std::string& prefix, std::vector<Tensor>& into) {
    for (;;) {
      const auto found = tensors.find(prefix + std::to_string(into.size()));
      if (found == tensors.end()) return;
      into.push_back(placement.moved(found->second));
    }
  };
  for (std::int64_t index = 0; index < count; ++index) {
    Batch batch;
    collect(std::to_string(index) + "/input/", batch.inputs);
    collect(std::to_string(index) + "/target/", batch.targets);
    if (batch.inputs.empty())
      throw std::runtime_error("there is no batch " + std::to_string(index));
    batches.push_back(std::move(batch));
  }
  if (batches.empty()) throw std::runtime_error("the workload has no batches");
  return batches;
}

/// Load the program's tensors from the files and place them; reset gradients and the optimizer.
inline void load_state(Program& program, const Placement& placement,
                       const std::string& weights_path, const std::string& constants_path) {
  const auto give = [&](const safetensors::Tensors& from, const std::string& path, auto& entry) {
    const auto found = from.find(entry.name);
    if (found == from.end()) throw std::runtime_error(path + " has no tensor " + entry.name);
    static_cast<Tensor&>(entry) = placement.cast(placement.moved(found->second));
  };
  const safetensors::Tensors weights = safetensors::read(weights_path);
  for (Parameter* parameter : program.parameters) {
    give(weights, weights_path, *parameter);
    parameter->gradient.reset();
    parameter->momentum.reset();
    parameter->square.reset();
  }
  program.steps = 0;
  for (Buffer* buffer : program.buffers) give(weights, weights_path, *buffer);
  if (program.constants.empty()) return;
  const safetensors::Tensors constants = safetensors::read(constants_path);
  for (Constant* constant : program.constants) give(constants, constants_path, *constant);
}

}  // namespace golow
