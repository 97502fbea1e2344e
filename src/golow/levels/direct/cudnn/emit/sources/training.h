// A training in the GPU's memory: plans of a step, one for each batch, over one state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "forms.h"
#include "graph.h"
#include "loading.h"
#include "network.h"
#include "plan.h"
#include "target.h"
#include "tensor_file.h"

namespace golow {

/// What training changes. kind: parameter, buffer, momentum, square, steps, scaler, dropout or
/// learning_rate. form: of a file; weights have their own names there, and everything else KIND/NAME.
/// memory, offset, storage: its place among the state. first: what a number is if a file does not have
/// it.
struct State {
  std::string_view kind;
  Form form;
  int memory;
  std::int64_t offset;
  Storage storage;
  double first;
};

/// What network.cpp says. state: by its numbers. beside: weights that no step changes. rate: the
/// learning rate at first. constants: a safetensors file in memory.
struct TrainingFacts {
  const char* name;
  Target target;
  std::vector<State> state;
  std::vector<Form> beside, inputs, targets;
  std::vector<PlanSource> plans;  // from the smallest batch to the largest
  float rate;
  const char* constants;
  std::size_t constants_bytes;
};

/// One call may run at a time.
class Training {
 public:
  /// As `load`. evaluation: the network in inference, with the same weights. Throws Failure for another
  /// GPU, too, and for another version of a library.
  Training(const TrainingFacts& facts, const Facts& evaluation, const std::string& file);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training();

  /// The loss of a batch in the host's memory, before the update that follows; waits. Throws Failure for
  /// a batch without a plan.
  float step(std::int64_t batch, const void* const* inputs, const void* const* targets);
  /// Enqueues the same on a stream, on the GPU's memory. loss: there, too.
  void enqueue(std::int64_t batch, const void* const* inputs, const void* const* targets, void* loss,
               CUstream stream);
  /// Runs the network in inference with the present weights, on memory of the host; waits. Throws Failure
  /// for a batch that it does not take.
  void evaluate(std::int64_t batch, const void* const* inputs, void* const* outputs);

  /// Of the steps that are enqueued from now on.
  void set_learning_rate(float rate);

  /// Takes the weights of a file, and of the optimizer and the loss scale what it has; the rest of that
  /// begins anew, and so do random numbers. Throws Failure, before anything changes, for a file that is
  /// damaged or has not the network's weights.
  void load(const std::string& file);
  /// Writes all of it, under the names of the state dict. Throws Failure if that fails.
  void save(const std::string& file);
  /// Copies a tensor of the state, row-major, by its name in files. Throws Failure if there is none,
  /// or if it has other bytes.
  void read(const std::string& name, void* into, std::size_t bytes);

 private:
  struct OneBatch;
  /// A copy of the state as files have it.
  struct Saved {
    std::vector<std::vector<char>> memory;
    std::vector<StoredTensor> tensors;
  };
  void build();
  void bind(OneBatch& one);
  const OneBatch& of(std::int64_t batch) const;
  CUdeviceptr address(const State& state) const;
  void write(const State& state, const Array& array);
  std::vector<char> content(const State& state) const;
  Saved saved(bool whole);
  void release();

  const TrainingFacts& facts_;
  const Facts& evaluation_;
  float rate_;
  const Device device_;
  TensorFile constants_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Turns> turns_;
  std::vector<std::unique_ptr<OneBatch>> batches_;
  std::unique_ptr<Region> arena_, loss_;
  std::vector<std::unique_ptr<Region>> state_, given_;
  std::vector<std::vector<char>> beside_;  // as `TrainingFacts::beside`
  std::shared_ptr<Network> network_;
  std::unique_ptr<Context> evaluated_;
  bool is_evaluated_ = false;  // with the present weights
  bool is_captured_ = false;   // whether a graph of the caller has a step
};

}  // namespace golow
