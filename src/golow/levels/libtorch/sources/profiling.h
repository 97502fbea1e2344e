// Writes the trace of iterations by PyTorch's own profiler, as golow/levels/torch/profiling.py does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "clock.h"
#include "json.h"
#include "program.h"
#include "session.h"

namespace torch::autograd::profiler {

/// Declared in a header that includes Kineto's, which PyTorch does not bring.
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);

}  // namespace torch::autograd::profiler

namespace golow {

/// An annotation in the trace, from here until it is destroyed.
class Annotation {
 public:
  explicit Annotation(std::string name) : name_(std::move(name)), scope_(at::RecordScope::USER_SCOPE) {
    if (scope_.isActive()) scope_.before(name_);
  }
  Annotation(const Annotation&) = delete;
  Annotation& operator=(const Annotation&) = delete;

 private:
  std::string name_;
  at::RecordFunction scope_;
};

/// Annotates layers and phases: each operation begins where the one before ended.
class AnnotatedOperations : public OperationListener {
 public:
  AnnotatedOperations(std::vector<Operation> operations, std::function<void()> before_update)
      : operations_(std::move(operations)), before_update_(std::move(before_update)) {}

  void begin() { enter(0); }

  void passed(std::size_t operation) override { enter(operation + 1); }

  /// The optimizer begins.
  void update() {
    layer_.reset();
    before_update_();
    enter_phase("update");
  }

  void end() {
    layer_.reset();
    phase_.reset();
    name_.clear();
  }

 private:
  void enter(std::size_t operation) {
    layer_.reset();
    if (operation >= operations_.size()) return;
    enter_phase(operations_[operation].phase);
    layer_.emplace(std::string("golow layer ") + operations_[operation].module);
  }

  void enter_phase(const std::string& name) {
    if (name == name_) return;
    phase_.reset();
    phase_.emplace("golow phase " + name);
    name_ = name;
  }

  std::vector<Operation> operations_;
  std::function<void()> before_update_;
  std::string name_;
  std::optional<Annotation> phase_, layer_;
};

/// Where the tensors of a session lie, as the trace says it beside its events.
class KnownMemory {
 public:
  /// Called before the update, while the gradients are there.
  void take(const Session& session, int step) {
    json::Array blocks;
    const auto add = [&](const char* category, const std::string& name, const Tensor& tensor) {
      if (!tensor.defined()) return;
      const auto address = reinterpret_cast<std::intptr_t>(tensor.storage().data());
      blocks.push_back(json::Object{{"category", category},
                                    {"name", name},
                                    {"address", static_cast<std::int64_t>(address)},
                                    {"bytes", static_cast<std::int64_t>(tensor.storage().nbytes())}});
    };
    const Program& program = session.program();
    for (const Parameter* parameter : program.parameters) {
      add("parameters", parameter->name, *parameter);
      add("gradients", parameter->name, parameter->gradient);
      add("optimizer state", parameter->name, parameter->momentum);
      add("optimizer state", parameter->name, parameter->square);
    }
    for (const Buffer* buffer : program.buffers) add("parameters", buffer->name, *buffer);
    for (const Constant* constant : program.constants) add("parameters", constant->name, *constant);
    for (const Batch& batch : session.batches()) {
      for (const Tensor& input : batch.inputs) add("inputs", "input", input);
      for (const Tensor& target : batch.targets) add("inputs", "target", target);
    }
    snapshots_.push_back(json::Object{{"step", std::int64_t{step}}, {"blocks", std::move(blocks)}});
  }

  std::string text() const { return json::dump(snapshots_); }

 private:
  json::Array snapshots_;
};

/// Profile that many iterations and write the trace. The profiler starts in iterations before the
/// first step. Each step ends when the device is done, so that what it put there belongs to it.
inline void write_trace(Session& session, std::size_t iterations, const std::string& file) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  constexpr int kWarmUp = 2;
  const torch::profiler::impl::ProfilerConfig config(
      torch::profiler::impl::ProfilerState::KINETO, /*report_input_shapes=*/true,
      /*profile_memory=*/true);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (!session.device().is_cpu()) activities.insert(ActivityType::CUDA);
  int number = -kWarmUp;
  KnownMemory known;
  AnnotatedOperations annotated(session.operations(), [&] { known.take(session, number); });
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  for (; number < static_cast<int>(iterations); ++number) {
    const Annotation step("golow step " + std::to_string(number));
    session.iterate(annotated);
    synchronize(session.device());
  }
  profiler::addMetadataJson("golow memory", known.text());
  profiler::disableProfiler()->save(file);
}

}  // namespace golow
