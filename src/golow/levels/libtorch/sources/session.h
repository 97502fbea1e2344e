// One loaded workload, with a method for each of the worker's requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bundle.h"
#include "challenge.h"
#include "clock.h"
#include "epoch.h"
#include "feed.h"
#include "memory.h"
#include "optimizer.h"
#include "pixels.h"
#include "program.h"
#include "safetensors.h"
#include "state.h"

namespace golow {

/// Switches random layers off while it lives, also when a step throws.
struct RandomLayersOff {
  explicit RandomLayersOff(Program& program) : program(program) { program.random_layers = false; }
  RandomLayersOff(const RandomLayersOff&) = delete;
  RandomLayersOff& operator=(const RandomLayersOff&) = delete;
  ~RandomLayersOff() { program.random_layers = true; }
  Program& program;
};

/// Lets somebody listen to the program while it lives, also when a step throws.
struct Listening {
  Listening(Program& program, OperationListener& listener) : program(program) {
    program.listener = &listener;
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  ~Listening() { program.listener = nullptr; }
  Program& program;
};

/// Records the time after each operation: one point per operation, and more points for others.
class TimedOperations : public OperationListener {
 public:
  TimedOperations(at::Device device, std::size_t points) : times(device, points) {}
  void passed(std::size_t operation) override { times.record(operation); }
  Timeline times;
};

/// One loaded workload, with the state that its iterations change.
class Session {
 public:
  explicit Session(const std::string& bundle)
      : bundle_(bundle),
        program_(make_program()),
        workload_(read_workload(path("workload.json"))),
        settled_(program_->loss_scale) {
    require_match(*program_, workload_);
    workload_.placement.take_effect();
    batches_ = collect_batches(safetensors::read(path("batches.safetensors")), workload_.batches,
                               workload_.placement);
    if (std::ifstream(path("last/workload.json")))
      last_batch_ = read_workload(path("last/workload.json")).batch;
    reset();
    if (settled_) settle_loss_scale();
    record();
    synchronize(device());
  }

  /// Back to the bundle's weights, zero momentum, the settled loss scale and the first batch.
  void reset() {
    load_state(*program_, workload_.placement, path("weights.safetensors"),
               path("constants.safetensors"));
    program_->reset(device());
    program_->loss_scale = settled_;
    optimizer_ = workload_.optimizer;
    position_ = 0;
  }

  /// The same; training then uses this learning rate.
  void reset(double learning_rate) {
    reset();
    optimizer_.learning_rate = learning_rate;
  }

  /// Let the next iteration be that one.
  void seek(std::size_t iteration) { position_ = iteration; }

  /// Write the values from that place on into the marked part of the next iteration's batch.
  void mark(MarkedBatches& marked, std::int64_t start) {
    marked.write(position_ % batches_.size(), start);
  }

  const std::vector<Batch>& batches() const { return batches_; }

  /// Keep the result of the last iteration.
  void keep() { kept_.keep(*program_, result_); }

  std::vector<double> kept() { return kept_.take(); }

  /// The outputs of the last iteration; in training its loss, and the state.
  safetensors::Tensors result() const {
    if (program_->trains) {
      safetensors::Tensors tensors = saved_state(*program_, workload_.placement);
      tensors["loss/loss"] = workload_.placement.stored(result_.loss);
      return tensors;
    }
    safetensors::Tensors tensors;
    for (std::size_t i = 0; i < result_.outputs.size(); ++i)
      tensors["output/" + std::to_string(i)] = workload_.placement.stored(result_.outputs[i]);
    return tensors;
  }

  /// One forward pass, or one training step, on the next batch.
  void iterate() {
    step();
    if (program_->trains) update(optimizer_);
  }

  /// The same, with annotations of its parts.
  template <typename Annotated>
  void iterate(Annotated& annotated) {
    const Listening on(*program_, annotated);
    annotated.begin();
    step();
    annotated.update();
    if (program_->trains) update(optimizer_);
    annotated.end();
  }

  /// Nanoseconds of each operation in that many iterations: one row per operation in the program's
  /// order, and in training one more for the optimizer's update.
  std::vector<std::vector<std::int64_t>> time_operations(std::size_t iterations) {
    const std::size_t count = program_->operations().size();
    std::vector<std::vector<std::int64_t>> times(count + (program_->trains ? 1 : 0));
    const std::size_t start = count, stepped = count + 1, updated = count + 2;
    TimedOperations timed(device(), count + 3);
    Timeline& marks = timed.times;
    const Listening on(*program_, timed);
    for (std::size_t i = 0; i < iterations; ++i) {
      marks.record(start);
      step();
      marks.record(stepped);
      if (program_->trains) update(optimizer_);
      marks.record(updated);
      synchronize(device());
      for (std::size_t operation = 0; operation < count; ++operation)
        times[operation].push_back(
            marks.between(operation == 0 ? start : operation - 1, operation));
      if (program_->trains) times[count].push_back(marks.between(stepped, updated));
    }
    return times;
  }

  std::vector<Operation> operations() const { return program_->operations(); }

  /// Run the batches from the bundle's weights with random layers off and this learning rate;
  /// returns the tensors that the check reads.
  safetensors::Tensors outputs(const std::vector<std::size_t>& indices, double learning_rate) {
    reset();
    Optimizer optimizer = workload_.optimizer;
    optimizer.learning_rate = learning_rate;
    safetensors::Tensors tensors;
    {
      const RandomLayersOff off(*program_);
      for (std::size_t step = 0; step < indices.size(); ++step)
        output_step(batches_[indices[step]], optimizer, step, step + 1 == indices.size(), tensors);
    }
    reset();
    return tensors;
  }

  /// Train on batches of the order from `first` on, each with its own learning rate, starting from
  /// the current state. Throws before the first step if something does not fit the workload.
  Trained train(const Data& data, const Order& order, const Normalisation& normalisation,
                std::size_t first, const std::vector<double>& learning_rates,
                std::uint32_t checksum) {
    require_mode(true);
    require_data(data, normalisation);
    const Batches batches(order.rows().size(), batch_size(), first, learning_rates.size());
    const auto last = static_cast<std::int64_t>(batches.back().rows);
    if (last != workload_.batch && last != last_batch_)
      throw std::runtime_error("the last batch has " + std::to_string(last) +
                               " rows, but the bundle has no step of that size");
    return golow::train(*program_, workload_.placement, workload_.optimizer, data, order, batches,
                        normalisation, learning_rates, checksum);
  }

  /// Infer on batches of the data from `first` on.
  Predicted predict(const Data& data, const Normalisation& normalisation, std::size_t first,
                    std::size_t count) {
    require_mode(false);
    require_data(data, normalisation);
    const Batches batches(static_cast<std::size_t>(data.rows()), batch_size(), first, count);
    return golow::predict(*program_, workload_.placement, data, batches, batch_size(),
                          normalisation);
  }

  /// Write parameters, buffers and momentum.
  void save(const std::string& file) const {
    require_mode(true);
    safetensors::write(file, saved_state(*program_, workload_.placement));
  }

  /// Continue from such a file, or infer with its weights.
  void restore(const std::string& file) {
    restore_state(*program_, workload_.placement, file, settled_);
    synchronize(device());
  }

  /// The loss, or the first element of the first output; nothing if there is none.
  std::optional<double> last() const {
    const Tensor first = program_->trains           ? result_.loss
                         : result_.outputs.empty() ? Tensor()
                                                   : result_.outputs.front();
    if (!first.defined() || first.numel() == 0 || first.is_complex()) return std::nullopt;
    return first.flatten().select(0, 0).item().toDouble();
  }

  const Program& program() const { return *program_; }

  const Placement& placement() const { return workload_.placement; }

  at::Device device() const { return workload_.placement.device; }

  std::size_t batch_count() const { return batches_.size(); }

  /// Seconds of the load in which the step was recorded, and the bytes that the recording holds;
  /// nothing for a program that does not record.
  struct Recording {
    double seconds;
    std::int64_t bytes;
  };
  const std::optional<Recording>& recording() const { return recording_; }

 private:
  std::string path(const char* name) const { return bundle_ + "/" + name; }

  std::size_t batch_size() const { return static_cast<std::size_t>(workload_.batch); }

  void require_mode(bool train) const {
    if (program_->trains != train)
      throw std::runtime_error(train ? "the bundle's mode is infer, this needs train"
                                     : "the bundle's mode is train, this needs infer");
  }

  void require_data(const Data& data, const Normalisation& normalisation) const {
    data.require_sample(batches_.front().inputs.front().sizes().slice(1));
    normalisation.require_channels(data.channels());
  }

  const Batch& next_batch() { return batches_[position_++ % batches_.size()]; }

  /// Halve the loss scale until no batch's step is skipped: neither the check's steps nor the timed
  /// ones may be. The weights stay at their initial values, since the first steps have the largest
  /// gradients.
  void settle_loss_scale() {
    Optimizer optimizer = workload_.optimizer;
    optimizer.learning_rate = 0;
    std::size_t kept = 0;
    while (kept < batches_.size()) {
      const double before = program_->loss_scale->value;
      if (before < 1)
        throw std::runtime_error(
            "gradients in fp16 are not finite, whatever the scale of the loss; use --precision bf16");
      step();
      update(optimizer);
      kept = program_->loss_scale->value < before ? 0 : kept + 1;
    }
    // Half of that scale, because another batch's gradients may be a little larger.
    settled_ = LossScale{program_->loss_scale->value / 2, 0};
    reset();
  }

  void record() {
    const Batch batch = workload_.placement.cast(batches_.front());
    const std::int64_t start = nanoseconds();
    bool recorded = false;
    const std::int64_t bytes =
        allocated_peak(device(), [&] { recorded = program_->record(batch, device()); });
    if (!recorded) return;
    recording_ = {static_cast<double>(nanoseconds() - start) * 1e-9, bytes};
    reset();
  }

  void step() {
    const Batch& batch = next_batch();
    result_ = Result();
    workload_.placement.step(*program_, batch, result_);
  }

  void update(const Optimizer& optimizer) {
    update_parameters(*program_, optimizer);
    clear_gradients(*program_);
  }

  void output_step(const Batch& batch, const Optimizer& optimizer, std::size_t step, bool is_last,
                   safetensors::Tensors& tensors) {
    // Copies, because the next step changes the state in place.
    const auto keep = [&](const std::string& name, const Tensor& tensor) {
      // Under autocast the outputs are half precision; files hold float32, as everywhere.
      const bool cast =
          workload_.products != at::kFloat && tensor.scalar_type() == workload_.products;
      tensors[std::to_string(step) + "/" + name] =
          workload_.placement.stored(cast ? tensor.to(at::kFloat) : tensor);
    };
    Result result;
    workload_.placement.step(*program_, batch, result);
    for (std::size_t i = 0; i < result.outputs.size(); ++i)
      keep("output/" + std::to_string(i), result.outputs[i]);
    if (!program_->trains) return;
    keep("loss/loss", result.loss);
    for (const Buffer* buffer : program_->buffers)
      if (buffer->kind == updated) keep("buffer/" + buffer->name, *buffer);
    update_parameters(*program_, optimizer);
    for (const Parameter* parameter : program_->parameters) {
      if (!parameter->gradient.defined()) continue;
      if (step == 0) keep("gradient/" + parameter->name, parameter->gradient);
      if (is_last) keep("parameter/" + parameter->name, *parameter);
      if (is_last && parameter->momentum.defined())
        keep("momentum/" + parameter->name, parameter->momentum);
      if (is_last && parameter->square.defined())
        keep("square/" + parameter->name, parameter->square);
    }
    if (is_last && program_->steps > 0)
      keep("steps/steps", at::full({}, program_->steps, at::kFloat));
    clear_gradients(*program_);
  }

  std::string bundle_;
  std::unique_ptr<Program> program_;
  Workload workload_;
  std::optional<LossScale> settled_;  // at the start of a training
  std::vector<Batch> batches_;
  std::int64_t last_batch_ = 0;  // rows of an epoch's smaller last batch; 0 if all are whole
  std::size_t position_ = 0;
  Optimizer optimizer_;  // of the next iterations
  Result result_;
  KeptResults kept_;
  std::optional<Recording> recording_;
};

}  // namespace golow
