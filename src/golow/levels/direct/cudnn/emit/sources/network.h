// A network in memory: its plans over one set of weights, and contexts that run them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "forms.h"
#include "graph.h"
#include "plan.h"
#include "target.h"
#include "tensor_file.h"

namespace golow {

struct PlanSource {
  int batch;
  void (*build)(Plan&);
};

/// What network.cpp says. pads: whether a batch between sizes runs in the larger one. changed: inputs
/// that the network changes; what they become are further outputs of each plan. constants: a
/// safetensors file in memory.
struct Facts {
  const char* name;
  Target target;
  bool pads;
  std::vector<Form> weights, inputs, outputs;
  std::vector<int> changed;
  std::vector<PlanSource> plans;  // from the smallest batch to the largest
  const char* constants;
  std::size_t constants_bytes;
};

class Network {
 public:
  /// Throws Failure for a file that is damaged or has not the network's weights, and for another GPU or
  /// another version of a library.
  Network(const Facts& facts, const TensorFile& weights);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  ~Network();

  /// Takes other weights, in the memory of the present ones. No context may run. Throws Failure, before
  /// anything changes, if they are not the network's.
  void reload(const TensorFile& weights);

  const Facts& facts;
  const Device device;
  /// In the order of `Facts::plans`; at: where each piece of a plan is, 0 for what a context has.
  struct Loaded {
    std::unique_ptr<Plan> plan;
    Addresses at;
  };
  const std::vector<Loaded>& plans() const { return plans_; }
  /// The machine, for one thread.
  Machine& machine() const { return *machine_; }
  std::mutex& one_at_a_time() const { return mutex_; }

 private:
  using Known = std::vector<std::vector<std::pair<std::size_t, CUdeviceptr>>>;
  void share(Loaded& loaded, Known& known);
  bool is_same(CUdeviceptr one, CUdeviceptr other, std::size_t bytes) const;
  void release();

  TensorFile constants_;
  std::unique_ptr<Machine> machine_;
  std::vector<Loaded> plans_;
  std::vector<std::unique_ptr<Region>> regions_;
  mutable std::mutex mutex_;
};

/// The memory of an iteration. One call may run at a time.
class Context {
 public:
  explicit Context(std::shared_ptr<const Network> network);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  /// Runs on memory of the host, and waits.
  void run(std::int64_t batch, const void* const* inputs, void* const* outputs);
  /// Enqueues on a stream, on memory of the device. Throws Failure for a batch that no plan takes.
  void enqueue(std::int64_t batch, const void* const* inputs, void* const* outputs, CUstream stream);

 private:
  struct Bound;
  void bind(const Network::Loaded& loaded);
  void release();
  Addresses staged(const std::vector<Form>& forms, std::vector<std::unique_ptr<Region>>& held) const;
  void launch(std::size_t index, const Addresses& inputs, const Addresses& outputs, CUstream stream);
  void padded(std::size_t index, std::int64_t batch, const Addresses& inputs, const Addresses& outputs,
              CUstream stream);

  std::shared_ptr<const Network> network_;
  std::unique_ptr<Region> arena_;
  std::unique_ptr<Turns> turns_;  // if plans share memory
  std::vector<std::unique_ptr<Bound>> bound_;
  /// For batches between sizes, and for memory of the host; on first use.
  std::vector<std::unique_ptr<Region>> padded_inputs_, padded_outputs_, host_inputs_, host_outputs_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace golow
