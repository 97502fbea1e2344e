#include "filling.h"

#include <cstring>
#include <string>
#include <utility>

namespace golow {
namespace {

/// What a plan reads while it is loaded.
class LoadingSources : public Sources {
 public:
  LoadingSources(const std::vector<Form>& forms, const TensorFile& weights, const TensorFile& constants,
                 const Machine& machine, const Addresses& at)
      : forms_(forms), weights_(weights), constants_(constants), machine_(machine), at_(at) {}

  const StoredTensor& weight(const char* name) const override {
    for (const Form& form : forms_)
      if (std::strcmp(form.name, name) == 0) return *find(weights_, form);
    throw Failure(Status::internal, std::string("there is no weight ") + name);
  }
  const StoredTensor& constant(const char* name) const override { return require(constants_, name); }
  Array made(int piece, std::int64_t offset, const Storage& storage) const override {
    std::vector<char> bytes(storage.bytes());
    const CUdeviceptr from = at_[static_cast<std::size_t>(piece)] + static_cast<CUdeviceptr>(offset);
    machine_.stream.download(bytes.data(), from, bytes.size());
    return unstored(bytes, storage);
  }

 private:
  const std::vector<Form>& forms_;
  const TensorFile& weights_;
  const TensorFile& constants_;
  const Machine& machine_;
  const Addresses& at_;
};

}  // namespace

void fill(const Plan& plan, Addresses at, const std::vector<Form>& forms, const TensorFile& weights,
          const TensorFile& constants, Machine& machine) {
  const Region once(plan.once_bytes), kept(plan.kept_bytes);
  for (std::size_t i = 0; i < at.size(); ++i) {
    const auto offset = static_cast<CUdeviceptr>(plan.pieces[i].offset);
    if (plan.pieces[i].place == Place::once) at[i] = once.address() + offset;
    if (plan.pieces[i].place == Place::kept) at[i] = kept.address() + offset;
  }
  const LoadingSources sources(forms, weights, constants, machine, at);
  std::vector<const Fill*> waiting(plan.pieces.size(), nullptr);
  for (const Fill& fill : plan.fills) waiting[static_cast<std::size_t>(fill.piece)] = &fill;
  const auto write = [&](std::size_t piece) {
    const Fill* const fill = std::exchange(waiting[piece], nullptr);
    if (fill == nullptr) return;
    const std::vector<char> bytes = stored(fill->host(sources), fill->storage);
    if (bytes.size() > plan.pieces[piece].bytes)
      throw Failure(Status::internal, "a weight is larger than its place");
    machine.stream.upload(at[piece], bytes.data(), bytes.size());
  };
  for (const Step& step : plan.loading) {
    for (const Value value : step.values)
      if (value.piece >= 0) write(static_cast<std::size_t>(value.piece));
    golow::enqueue(step, machine, at);
  }
  for (std::size_t piece = 0; piece < waiting.size(); ++piece) write(piece);
  machine.stream.wait();
}

}  // namespace golow
