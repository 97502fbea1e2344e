#include "forms.h"

#include <string>

#include "failure.h"

namespace golow {

std::size_t bytes_of(const Form& form, std::int64_t batch) {
  std::size_t bytes = element_bytes(form.dtype);
  for (const std::int64_t side : form.shape) bytes *= static_cast<std::size_t>(side < 0 ? -side * batch : side);
  return bytes;
}

const StoredTensor* find(const TensorFile& file, const Form& form) {
  const StoredTensor* found = file.find(form.name);
  for (std::size_t i = 0; found == nullptr && i < form.also.size(); ++i) found = file.find(form.also[i]);
  return found;
}

void require_weights(const char* network, const std::vector<Form>& weights, const TensorFile& file) {
  for (const Form& form : weights) {
    const StoredTensor* const found = find(file, form);
    if (found == nullptr) throw Failure(Status::weights, file.name() + " has no " + form.name);
    const std::string what = file.name() + ": " + form.name + " is ";
    const std::string wants = std::string("; ") + network + " has ";
    if (found->shape != form.shape)
      throw Failure(Status::weights, what + in_words(found->shape) + wants + in_words(form.shape));
    if (found->dtype != form.dtype)
      throw Failure(Status::weights, what + found->dtype + wants + form.dtype);
  }
}

}  // namespace golow
