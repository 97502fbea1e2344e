// What a `time` request may demand beyond times, so that they are the times of what was proved:
// values written into the inputs, which nobody knew before, and the result of every iteration.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Before iteration i elements `start` to `start + length` of every sample of that input become
/// `values[i]`.
struct Marks {
  std::size_t input = 0;
  std::int64_t start = 0, length = 0;
  std::vector<double> values;
};

inline Marks read_marks(const json::Value& value) {
  Marks marks;
  const std::int64_t input = value.at("input").integer();
  marks.start = value.at("start").integer();
  marks.length = value.at("length").integer();
  if (input < 0 || marks.start < 0 || marks.length < 0)
    throw std::out_of_range("a mark lies before the beginning of an input");
  marks.input = static_cast<std::size_t>(input);
  for (const json::Value& number : value.at("values").array())
    marks.values.push_back(number.number());
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
        throw std::out_of_range("a mark lies beyond the end of a sample");
      parts_.push_back(samples.narrow(1, marks.start, marks.length));
      saved_.push_back(parts_.back().clone());
    }
  }
  MarkedBatches(const MarkedBatches&) = delete;
  MarkedBatches& operator=(const MarkedBatches&) = delete;
  ~MarkedBatches() {
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].copy_(saved_[i]);
  }

  void write(std::size_t batch, double value) { parts_[batch].fill_(value); }

 private:
  std::vector<Tensor> parts_, saved_;
};

/// The weights of elements `start` to `start + count` of the outputs, each from -1 to 1: the hash of
/// golow/worker/results.py.
inline Tensor result_weights(std::int64_t start, std::int64_t count) {
  Tensor weights = at::empty({count}, at::kFloat);
  float* const data = weights.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    auto hash = static_cast<std::uint32_t>(start + i) * 0x9E3779B1U;
    hash = (hash ^ (hash >> 16)) * 0x85EBCA6BU;
    hash = (hash ^ (hash >> 13)) * 0xC2B2AE35U;
    hash ^= hash >> 16;
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
  json::Array take() {
    json::Array numbers;
    for (const Tensor& number : kept_) numbers.emplace_back(number.item().toDouble());
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
