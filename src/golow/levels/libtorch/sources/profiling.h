// Writes the trace of iterations by PyTorch's own profiler, as golow/levels/torch/profiling.py does.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "clock.h"
#include "program.h"
#include "session.h"

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
  explicit AnnotatedOperations(std::vector<Operation> operations)
      : operations_(std::move(operations)) {}

  void begin() { enter(0); }

  void passed(std::size_t operation) override { enter(operation + 1); }

  /// The optimizer begins.
  void update() {
    layer_.reset();
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
  std::string name_;
  std::optional<Annotation> phase_, layer_;
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
  AnnotatedOperations annotated(session.operations());
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  for (int number = -kWarmUp; number < static_cast<int>(iterations); ++number) {
    const Annotation step("golow step " + std::to_string(number));
    session.iterate(annotated);
    synchronize(session.device());
  }
  profiler::disableProfiler()->save(file);
}

}  // namespace golow
