#include "network.h"

#include <algorithm>

#include "filling.h"

namespace golow {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kCompared = std::size_t{64} << 20;  // bytes that are on the host at once

std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Network::Network(const Facts& facts, const TensorFile& weights)
    : facts(facts), constants_(facts.constants, facts.constants_bytes, "constants") {
  const Current current(device);
  require_target(facts.name, facts.target, device);
  require_weights(facts.name, facts.weights, weights);
  Known known;
  try {
    machine_ = std::make_unique<Machine>(device, constants_);
    for (const PlanSource& source : facts.plans) {
      Loaded& loaded = plans_.emplace_back();
      loaded.plan = std::make_unique<Plan>(*machine_, source.batch);
      source.build(*loaded.plan);
      auto region = std::make_unique<Region>(loaded.plan->constant_bytes);
      for (const Piece& piece : loaded.plan->pieces)
        loaded.at.push_back(piece.place == Place::constant ? region->address() + static_cast<CUdeviceptr>(piece.offset)
                                                           : 0);
      fill(*loaded.plan, loaded.at, facts.weights, weights, constants_, *machine_);
      if (facts.plans.size() > 1)
        share(loaded, known);  // its own memory is given back
      else
        regions_.push_back(std::move(region));
    }
  } catch (...) {
    release();
    throw;
  }
}

Network::~Network() {
  const Current current(device);
  release();
}

void Network::release() {
  plans_.clear();
  regions_.clear();
  machine_.reset();
}

void Network::reload(const TensorFile& weights) {
  const Current current(device);
  require_weights(facts.name, facts.weights, weights);
  for (const Loaded& loaded : plans_) fill(*loaded.plan, loaded.at, facts.weights, weights, constants_, *machine_);
}

/// Moves the constants of a plan to memory that it shares with those before it: what has the same key
/// and the same content is there once. known: places by key.
void Network::share(Loaded& loaded, Known& known) {
  const std::vector<Piece>& pieces = loaded.plan->pieces;
  std::vector<std::size_t> kept;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].place != Place::constant) continue;
    const auto key = static_cast<std::size_t>(pieces[i].key);
    if (key >= known.size()) known.resize(key + 1);
    const auto same = std::find_if(known[key].begin(), known[key].end(), [&](const auto& place) {
      return place.first == pieces[i].bytes && is_same(place.second, loaded.at[i], place.first);
    });
    if (same != known[key].end()) {
      loaded.at[i] = same->second;
    } else {
      kept.push_back(i);
      bytes += rounded(pieces[i].bytes);
    }
  }
  auto region = std::make_unique<Region>(bytes);
  CUdeviceptr next = region->address();
  for (const std::size_t i : kept) {
    check(cuMemcpyDtoDAsync(next, loaded.at[i], pieces[i].bytes, machine_->stream.handle()), "cuMemcpyDtoDAsync");
    loaded.at[i] = next;
    known[static_cast<std::size_t>(pieces[i].key)].emplace_back(pieces[i].bytes, next);
    next += rounded(pieces[i].bytes);
  }
  machine_->stream.wait();
  regions_.push_back(std::move(region));
}

bool Network::is_same(CUdeviceptr one, CUdeviceptr other, std::size_t bytes) const {
  for (std::size_t at = 0; at < bytes; at += kCompared) {
    std::vector<char> first(std::min(kCompared, bytes - at)), second(first.size());
    machine_->stream.download(first.data(), one + at, first.size());
    machine_->stream.download(second.data(), other + at, second.size());
    if (first != second) return false;
  }
  return true;
}

// ---------------------------------------------------------------- contexts

/// A plan over the memory of a context, as one CUDA graph. ends: the inputs and outputs among its
/// pieces, in the order of the graph's places.
struct Context::Bound {
  std::unique_ptr<Region> kept;
  std::vector<const Piece*> ends;
  std::unique_ptr<PointedGraph> graph;
};

Context::Context(std::shared_ptr<const Network> network) : network_(std::move(network)) {
  const std::lock_guard<std::mutex> alone(network_->one_at_a_time());
  const Current current(network_->device);
  std::size_t arena = 0;
  for (const Network::Loaded& loaded : network_->plans()) arena = std::max(arena, loaded.plan->arena_bytes);
  try {
    arena_ = std::make_unique<Region>(arena);
    if (network_->plans().size() > 1 || network_->facts.pads) turns_ = std::make_unique<Turns>();
    for (const Network::Loaded& loaded : network_->plans()) bind(loaded);
  } catch (...) {
    release();
    throw;
  }
}

Context::~Context() {
  const Current current(network_->device);
  cuCtxSynchronize();  // what was enqueued may still run
  release();
}

void Context::release() {
  for (auto* held : {&padded_inputs_, &padded_outputs_, &host_inputs_, &host_outputs_}) held->clear();
  bound_.clear();
  turns_.reset();
  stream_.reset();
  arena_.reset();
}

void Context::bind(const Network::Loaded& loaded) {
  const Plan& plan = *loaded.plan;
  Machine& machine = network_->machine();
  Bound& bound = *bound_.emplace_back(std::make_unique<Bound>());
  bound.kept = std::make_unique<Region>(plan.kept_bytes);
  std::vector<std::unique_ptr<Region>> standing_in;
  std::vector<Span> places;
  Addresses at = loaded.at;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Piece& piece = plan.pieces[i];
    const auto offset = static_cast<CUdeviceptr>(piece.offset);
    if (piece.place == Place::arena) at[i] = arena_->address() + offset;
    if (piece.place == Place::kept) at[i] = bound.kept->address() + offset;
    if (piece.place != Place::input && piece.place != Place::output) continue;
    standing_in.push_back(std::make_unique<Region>(piece.bytes));
    at[i] = standing_in.back()->address();
    places.push_back({at[i], standing_in.back()->bytes()});
    bound.ends.push_back(&piece);
  }
  const auto enqueue_all = [&] {
    for (const Step& step : plan.steps) golow::enqueue(step, machine, at);
  };
  enqueue_all();  // libraries load their kernels on first use, not inside a graph
  machine.stream.wait();
  bound.graph = std::make_unique<PointedGraph>(machine.stream.handle(), enqueue_all, places, machine.own);
  machine.stream.wait();
}

void Context::launch(std::size_t index, const Addresses& inputs, const Addresses& outputs, CUstream stream) {
  const Bound& bound = *bound_[index];
  Addresses addresses;
  for (const Piece* const end : bound.ends) {
    const auto number = static_cast<std::size_t>(end->offset);
    if (end->place == Place::input)
      addresses.push_back(inputs[number]);
    else if (number < outputs.size())
      addresses.push_back(outputs[number]);
    else
      addresses.push_back(inputs[static_cast<std::size_t>(network_->facts.changed[number - outputs.size()])]);
  }
  bound.graph->launch(addresses, stream);
}

/// Memory for tensors of the largest batch, which is held from the first call on.
Addresses Context::staged(const std::vector<Form>& forms, std::vector<std::unique_ptr<Region>>& held) const {
  const std::int64_t largest = network_->facts.plans.back().batch;
  Addresses found;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (i == held.size()) held.push_back(std::make_unique<Region>(bytes_of(forms[i], largest)));
    found.push_back(held[i]->address());
  }
  return found;
}

/// Runs a batch in a larger plan: the last sample is repeated up to its size.
void Context::padded(std::size_t index, std::int64_t batch, const Addresses& inputs, const Addresses& outputs,
                     CUstream stream) {
  const Facts& facts = network_->facts;
  const auto copy = [&](CUdeviceptr target, CUdeviceptr source, std::size_t bytes) {
    if (bytes != 0) check(cuMemcpyDtoDAsync(target, source, bytes, stream), "cuMemcpyDtoDAsync");
  };
  Addresses given = staged(facts.inputs, padded_inputs_);
  const Addresses made = staged(facts.outputs, padded_outputs_);
  for (std::size_t i = 0; i < given.size(); ++i) {
    const Form& form = facts.inputs[i];
    if (!is_batched(form)) {
      given[i] = inputs[i];
      continue;
    }
    const std::size_t there = bytes_of(form, batch), sample = bytes_of(form, 1);
    copy(given[i], inputs[i], there);
    for (std::size_t at = there; at < bytes_of(form, facts.plans[index].batch); at += sample)
      copy(given[i] + at, inputs[i] + there - sample, sample);
  }
  launch(index, given, made, stream);
  for (std::size_t i = 0; i < made.size(); ++i) copy(outputs[i], made[i], bytes_of(facts.outputs[i], batch));
  for (const int place : facts.changed) {
    const auto i = static_cast<std::size_t>(place);
    if (given[i] != inputs[i]) copy(inputs[i], given[i], bytes_of(facts.inputs[i], batch));
  }
}

namespace {

Addresses addresses_of(const void* const* pointers, std::size_t count) {
  Addresses found;
  for (std::size_t i = 0; i < count; ++i) found.push_back(reinterpret_cast<CUdeviceptr>(pointers[i]));
  return found;
}

}  // namespace

void Context::enqueue(std::int64_t batch, const void* const* inputs, void* const* outputs, CUstream stream) {
  const Facts& facts = network_->facts;
  const auto largest = facts.plans.back().batch;
  if (batch < 1 || batch > largest || (!facts.pads && batch != largest))
    throw Failure(Status::call, "a batch of " + std::to_string(batch) + " is not " +
                                    (facts.pads ? "1 to " : "") + std::to_string(largest));
  const Current current(network_->device);
  std::size_t index = 0;
  while (facts.plans[index].batch < batch) ++index;
  const Addresses given = addresses_of(inputs, facts.inputs.size());
  const Addresses made = addresses_of(outputs, facts.outputs.size());
  // A graph that is being captured orders what is in it by itself.
  const Turns* const turns = is_capturing(stream) ? nullptr : turns_.get();
  if (turns != nullptr) turns->begin(stream);
  if (facts.plans[index].batch == batch)
    launch(index, given, made, stream);
  else
    padded(index, batch, given, made, stream);
  if (turns != nullptr) turns->end(stream);
}

void Context::run(std::int64_t batch, const void* const* inputs, void* const* outputs) {
  const Facts& facts = network_->facts;
  const Current current(network_->device);
  if (stream_ == nullptr) stream_ = std::make_unique<Stream>();
  const Addresses given = staged(facts.inputs, host_inputs_), made = staged(facts.outputs, host_outputs_);
  const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  std::vector<const void*> from;
  std::vector<void*> to;
  for (std::size_t i = 0; i < given.size(); ++i) {
    from.push_back(pointer(given[i]));
    const std::int64_t rows = std::min<std::int64_t>(batch, facts.plans.back().batch);
    stream_->upload(given[i], inputs[i], rows < 1 ? 0 : bytes_of(facts.inputs[i], rows));
  }
  for (const CUdeviceptr address : made) to.push_back(pointer(address));
  enqueue(batch, from.data(), to.data(), stream_->handle());
  for (std::size_t i = 0; i < made.size(); ++i)
    stream_->download(outputs[i], made[i], bytes_of(facts.outputs[i], batch));
  for (const int place : facts.changed) {
    const auto i = static_cast<std::size_t>(place);
    stream_->download(const_cast<void*>(inputs[i]), given[i], bytes_of(facts.inputs[i], batch));
  }
}

}  // namespace golow
