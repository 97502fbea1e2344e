// What network.cpp says of inputs, outputs and weights, and whether a file of weights fits it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor_file.h"

namespace golow {

/// A weight, or one end of the network. shape: a negative side is so many times the batch. also: other
/// names of a weight, of which a file may have one alone.
struct Form {
  const char* name;
  const char* dtype;
  std::vector<std::int64_t> shape;
  std::vector<const char*> also = {};
};

/// Bytes of a tensor of that batch.
std::size_t bytes_of(const Form& form, std::int64_t batch);

/// Whether the first axis has the batch.
inline bool is_batched(const Form& form) { return !form.shape.empty() && form.shape[0] < 0; }

/// The weight in the file, by one of its names; nullptr if there is none.
const StoredTensor* find(const TensorFile& file, const Form& form);

/// Throws Failure unless the file has all of these weights, in their shapes. network: its name.
void require_weights(const char* network, const std::vector<Form>& weights, const TensorFile& file);

}  // namespace golow
