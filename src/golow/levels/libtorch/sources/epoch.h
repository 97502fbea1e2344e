// Whole epochs of a prepared data set: training in a given order, inference in the file's order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "clock.h"
#include "feed.h"
#include "optimizer.h"
#include "pixels.h"
#include "placement.h"
#include "program.h"

namespace golow {

/// `count` batches of rows from the batch `first` on; the last batch of all has the remaining rows.
class Batches {
 public:
  struct Part {
    std::size_t from, rows;
  };

  /// Throws if there are fewer.
  Batches(std::size_t rows, std::size_t batch, std::size_t first, std::size_t count)
      : rows_(rows), batch_(batch), first_(first), count_(count) {
    const std::size_t there = (rows + batch - 1) / batch;
    if (count == 0 || first >= there || count > there - first)
      throw std::out_of_range(std::to_string(count) + " batches from batch " +
                              std::to_string(first) + " on were requested, there are " +
                              std::to_string(there));
  }

  std::size_t size() const { return count_; }
  Part operator[](std::size_t index) const {
    const std::size_t from = (first_ + index) * batch_;
    return {from, std::min(batch_, rows_ - from)};
  }
  Part back() const { return (*this)[count_ - 1]; }

 private:
  std::size_t rows_, batch_, first_, count_;
};

/// The loss of each batch, the checksum of the samples consumed, and the duration.
struct Trained {
  std::vector<double> losses;
  std::uint32_t checksum;
  std::int64_t nanoseconds;
};

/// Train on the batches, each with its own learning rate; the given checksum is continued.
inline Trained train(Program& program, const Placement& placement, Optimizer optimizer, const Data& data,
                     const Order& order, const Batches& batches, const Normalisation& normalisation,
                     const std::vector<double>& learning_rates, std::uint32_t checksum) {
  std::vector<Tensor> losses;  // on the device, so that no step waits for the previous one
  const std::int64_t start = nanoseconds();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto [from, rows] = batches[i];
    const Samples samples = data.gather(order.rows().slice(from, rows), placement);
    checksum = samples.checksum(checksum);
    const Tensor pixels =
        augmented(placement.fed(samples.pixels), placement.fed(order.shifts(from, rows)),
                  placement.fed(order.flips(from, rows)), order.reach());
    Result result;
    program.step({{normalisation(pixels)}, {placement.fed(samples.labels)}}, result);
    losses.push_back(std::move(result.loss));
    optimizer.learning_rate = learning_rates[i];
    update_parameters(program, optimizer);
    clear_gradients(program);
  }
  synchronize(placement.device);
  const std::int64_t duration = nanoseconds() - start;
  const Tensor host = at::stack(losses).to(at::TensorOptions(at::kCPU).dtype(at::kDouble));
  const auto* const values = host.const_data_ptr<double>();
  return {{values, values + losses.size()}, checksum, duration};
}

/// The first output for every row of the batches, float32 on the CPU, and the duration.
struct Predicted {
  Tensor output;
  std::int64_t nanoseconds;
};

/// Run the batches of the data in the file's order. A smaller last one is filled up to `batch` rows
/// with copies of its last row, whose outputs are dropped.
inline Predicted predict(Program& program, const Placement& placement, const Data& data,
                         const Batches& batches, std::size_t batch,
                         const Normalisation& normalisation) {
  std::vector<Tensor> outputs;
  const std::int64_t start = nanoseconds();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const auto [from, count] = batches[i];
    std::vector<std::int64_t> rows;
    for (std::size_t row = 0; row < batch; ++row)
      rows.push_back(static_cast<std::int64_t>(from + std::min(row, count - 1)));
    const Samples samples = data.gather(rows, placement);
    Result result;
    placement.step(program, {{normalisation(placement.fed(samples.pixels))}, {}}, result);
    // A copy, because a program that is replayed writes its next outputs to the same place.
    outputs.push_back(result.outputs.at(0).narrow(0, 0, static_cast<std::int64_t>(count)).clone());
  }
  const Tensor output = at::cat(outputs);
  synchronize(placement.device);
  const std::int64_t duration = nanoseconds() - start;
  return {output.to(at::TensorOptions(at::kCPU).dtype(at::kFloat)), duration};
}

}  // namespace golow
