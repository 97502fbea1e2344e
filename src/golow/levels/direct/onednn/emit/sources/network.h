// A network in memory: its plans over one set of weights, and contexts that run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dnnl.h>

#include "forms.h"
#include "memory.h"
#include "plan.h"
#include "tensor_file.h"

namespace golow {

/// What network.cpp says. pads: whether a batch between sizes runs in the larger one. threads: of
/// every call; plans are made for them. changed: inputs that the network changes; what
/// they become are further outputs of each plan. constants: a safetensors file in memory.
struct Facts {
  const char* name;
  int threads;
  bool pads;
  std::vector<Form> weights, inputs, outputs;
  std::vector<int> changed;
  std::vector<PlanSource> plans;  // from the smallest batch to the largest
  const char* constants;
  std::size_t constants_bytes;
};

class Network {
 public:
  /// Throws Failure for a file that is damaged or has not the network's weights.
  Network(const Facts& facts, const TensorFile& weights);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  const Facts& facts;
  /// In the order of `Facts::plans`; at: where each piece of a plan is, nullptr for what a context
  /// has.
  struct Loaded {
    std::unique_ptr<Plan> plan;
    std::vector<char*> at;
  };
  const std::vector<Loaded>& plans() const { return plans_; }

 private:
  using Known = std::vector<std::vector<std::pair<std::size_t, char*>>>;
  void load(Loaded& loaded, const TensorFile& weights, const TensorFile& constants);
  void share(Loaded& loaded, Known& known);

  dnnl_engine_t engine_ = nullptr;
  std::vector<Loaded> plans_;
  std::vector<std::unique_ptr<Region>> regions_;
};

class Bound;

/// The memory of an iteration. One call may run at a time.
class Context {
 public:
  explicit Context(std::shared_ptr<const Network> network);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// Throws Failure for a batch that no plan takes.
  void run(std::int64_t batch, const void* const* inputs, void* const* outputs);

 private:
  const void* padded(const Form& form, const void* given, std::int64_t batch, int size, std::size_t place);

  std::shared_ptr<const Network> network_;
  std::unique_ptr<Region> arena_, scratch_;
  std::vector<std::unique_ptr<Bound>> bound_;
  std::vector<std::vector<char>> staged_;
};

}  // namespace golow
