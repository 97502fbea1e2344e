// What a `time` request may demand beyond times, so that they are the times of what was proved:
// values written into the inputs, which nobody knew before, and the result of every iteration.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/empty.h>

#include "json.h"
#include "program.h"

namespace golow {

/// The hash of golow/worker/hashing.py.
inline std::uint32_t hashed(std::uint32_t number) {
  std::uint32_t hash = number * 0x9E3779B1U;
  hash = (hash ^ (hash >> 16)) * 0x85EBCA6BU;
  hash = (hash ^ (hash >> 13)) * 0xC2B2AE35U;
  return hash ^ (hash >> 16);
}

/// Before each iteration elements `start` to `start + length` of every sample of that input become
/// random numbers, a window of one row: golow/worker/marking.py, in the same words.
struct Marks {
  static constexpr std::int64_t windows = 1 << 16;

  std::size_t input = 0;
  std::int64_t start = 0, length = 0;
  double low = 0, high = 0;
  bool whole = false;
  std::uint32_t seed = 0;
  std::optional<double> chain, previous;

  /// The row from which the iterations take their values, for batches of so many samples.
  Tensor values(std::int64_t rows) const {
    const std::int64_t size = rows * length + windows;
    Tensor row = at::empty({size}, whole ? at::kLong : at::kDouble);
    const auto range = static_cast<std::uint64_t>(high - low) + 1;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::uint64_t random = hashed(seed + static_cast<std::uint32_t>(i));
      if (whole)
        row.mutable_data_ptr<std::int64_t>()[i] =
            static_cast<std::int64_t>(low) + static_cast<std::int64_t>(random * range >> 32);
      else
        row.mutable_data_ptr<double>()[i] =
            low + (high - low) * (static_cast<double>(random) / 4294967296.0);
    }
    return row;
  }

  /// Where the values of an iteration begin. result: of the iteration before, if there is one.
  std::int64_t window(std::size_t iteration, const std::optional<double>& result) const {
    const std::uint32_t numbered = hashed(seed + static_cast<std::uint32_t>(iteration));
    return hashed(numbered + cell(result)) % windows;
  }

 private:
  std::uint32_t cell(const std::optional<double>& result) const {
    if (!chain || !result || !std::isfinite(*result / *chain)) return 0;
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(std::floor(*result / *chain)));
  }
};

inline std::optional<double> read_optional(const json::Value& value, const char* name) {
  const json::Value* const found = value.find(name);
  if (found == nullptr || found->is_null()) return std::nullopt;
  return found->number();
}

inline Marks read_marks(const json::Value& value) {
  Marks marks;
  const std::int64_t input = value.at("input").integer();
  marks.start = value.at("start").integer();
  marks.length = value.at("length").integer();
  if (input < 0 || marks.start < 0 || marks.length < 0)
    throw std::out_of_range("a mark is before the beginning of an input");
  marks.input = static_cast<std::size_t>(input);
  marks.low = value.at("low").number();
  marks.high = value.at("high").number();
  marks.whole = value.at("whole").boolean();
  marks.seed = static_cast<std::uint32_t>(value.at("seed").integer());
  marks.chain = read_optional(value, "chain");
  marks.previous = read_optional(value, "previous");
  return marks;
}

/// The batches with marks in them; the original values are back when this ends.
class MarkedBatches {
 public:
  MarkedBatches(const std::vector<Batch>& batches, const Marks& marks) {
    for (const Batch& batch : batches) {
      const Tensor& input = batch.input(marks.input);
      const Tensor samples = input.view({input.size(0), -1});
      if (marks.start + marks.length > samples.size(1))
        throw std::out_of_range("a mark is beyond the end of a sample");
      parts_.push_back(samples.narrow(1, marks.start, marks.length));
      saved_.push_back(parts_.back().clone());
    }
    row_ = marks.values(parts_.front().size(0)).to(parts_.front().options());
  }
  MarkedBatches(const MarkedBatches&) = delete;
  MarkedBatches& operator=(const MarkedBatches&) = delete;
  ~MarkedBatches() {
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].copy_(saved_[i]);
  }

  /// Write the values from that place of the row on.
  void write(std::size_t batch, std::int64_t start) {
    Tensor& part = parts_[batch];
    part.copy_(row_.narrow(0, start, part.numel()).view(part.sizes()));
  }

 private:
  std::vector<Tensor> parts_, saved_;
  Tensor row_;
};

/// The weights of elements `start` to `start + count` of the outputs, each from -1 to 1.
inline Tensor result_weights(std::int64_t start, std::int64_t count) {
  Tensor weights = at::empty({count}, at::kFloat);
  float* const data = weights.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t hash = hashed(static_cast<std::uint32_t>(start + i));
    data[i] = static_cast<float>(static_cast<double>(hash) / 2147483648.0 - 1.0);
  }
  return weights;
}

/// The result of every iteration as one number, kept on the device until it is asked for.
class KeptResults {
 public:
  void keep(const Program& program, const Result& result) {
    kept_.push_back(program.trains ? result.loss.clone() : weighted_sum(result.outputs));
  }

  /// Those since the last call, in order.
  std::vector<double> take() {
    std::vector<double> numbers;
    for (const Tensor& number : kept_) numbers.push_back(number.item().toDouble());
    kept_.clear();
    return numbers;
  }

 private:
  Tensor weighted_sum(const std::vector<Tensor>& outputs) {
    Tensor sum;
    std::int64_t start = 0;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Tensor flat = outputs[i].flatten().to(at::kFloat);
      if (weights_.size() == i)
        weights_.push_back(result_weights(start, flat.numel()).to(flat.device()));
      const Tensor part = at::dot(flat, weights_[i]);
      sum = sum.defined() ? at::add(sum, part) : part;
      start += flat.numel();
    }
    return sum;
  }

  std::vector<Tensor> weights_, kept_;
};

}  // namespace golow
