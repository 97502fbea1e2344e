// A training in memory: plans of a step, one for each batch, over one state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <dnnl.h>

#include "bound.h"
#include "forms.h"
#include "memory.h"
#include "network.h"
#include "plan.h"
#include "tensor_file.h"

namespace golow {

/// What training changes. kind: parameter, buffer, momentum, square, steps or learning_rate. form:
/// of a file; weights have their own names there, and what the optimizer keeps KIND/NAME. bytes: in
/// memory.
struct State {
  std::string_view kind;
  Form form;
  std::size_t bytes;
};

/// What network.cpp says. threads: of every call; plans are made for them. state: by its numbers.
/// beside: weights that no plan reads. rate: the learning rate at first. constants: a safetensors
/// file in memory.
struct TrainingFacts {
  const char* name;
  int threads;
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
  /// As `load`. evaluation: the network in inference, with the same weights.
  Training(const TrainingFacts& facts, const Facts& evaluation, const std::string& file);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training();

  /// The loss of a batch, before the update that follows. Throws Failure for a batch without a plan.
  float step(std::int64_t batch, const void* const* inputs, const void* const* targets);

  /// Runs the network in inference with the present weights. Throws Failure for a batch that it does
  /// not take.
  void evaluate(std::int64_t batch, const void* const* inputs, void* const* outputs);

  void set_learning_rate(float rate);

  /// Takes the weights of a file, and of the optimizer what it has; the rest of that is zero. Throws
  /// Failure, before anything changes, for a file that is damaged or has not the network's weights.
  void load(const std::string& file);
  /// Writes all of it, under the names of the state dict. Throws Failure if that fails.
  void save(const std::string& file);
  /// Copies a tensor of the state, row-major, by its name in files. Throws Failure if there is none,
  /// or if it has other bytes.
  void read(const std::string& name, void* into, std::size_t bytes);

 private:
  struct OneBatch {
    std::unique_ptr<Plan> plan;
    std::unique_ptr<Region> constants;
    std::unique_ptr<Bound> bound;
  };
  struct Held {
    char* at;
    Layout layout, plain;
  };
  /// A copy of the state as files have it.
  struct Saved {
    std::vector<std::vector<char>> memory;
    std::vector<StoredTensor> tensors;
  };
  void build(const PlanSource& source, const TensorFile& constants);
  void bind();
  void copy(const Held& held, const State& state, char* row_major, bool write);
  Saved saved();
  std::size_t plain_bytes(const State& state) const { return bytes_of(state.form, 1); }

  const TrainingFacts& facts_;
  const Facts& evaluation_;
  float rate_;
  dnnl_engine_t engine_ = nullptr;
  std::vector<OneBatch> batches_;
  std::unique_ptr<Region> state_, arena_, scratch_;
  std::vector<Held> held_;                 // by the numbers of the state
  std::vector<std::vector<char>> beside_;  // as `TrainingFacts::beside`
  std::unique_ptr<Context> evaluated_;     // of the present weights; none if they have changed
};

}  // namespace golow
