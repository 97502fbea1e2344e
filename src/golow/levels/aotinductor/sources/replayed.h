// A package whose pass is recorded when it is loaded, and then replayed as a whole.
#pragma once

#include <cstddef>
#include <vector>

#include "package.h"

namespace golow {

/// Graph: what records the work that a function enqueues on the device, and replays it. The tensors
/// that the work reads and writes stay where they are.
template <typename Graph>
class Replayed : public Package {
 public:
  Replayed() { casts_inputs = true; }

  bool record(const Batch& batch, at::Device device) override {
    for (const Tensor& input : batch.inputs) inputs_.inputs.push_back(input.clone());
    graph_.record(device, [&] {
      recorded_ = Result();
      Package::step(inputs_, recorded_);
    });
    return true;
  }

  /// The outputs are valid until the next step.
  void step(const Batch& batch, Result& result) override {
    for (std::size_t i = 0; i < inputs_.inputs.size(); ++i)
      inputs_.inputs[i].copy_(batch.input(i));
    graph_.replay();
    result.outputs = recorded_.outputs;
  }

 private:
  Graph graph_;  // outlives the tensors in its memory
  Batch inputs_;
  Result recorded_;
};

}  // namespace golow
