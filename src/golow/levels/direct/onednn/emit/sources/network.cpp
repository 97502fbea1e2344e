#include "network.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "bound.h"

namespace golow {

// ---------------------------------------------------------------- weights

Network::Network(const Facts& facts, const TensorFile& weights) : facts(facts) {
  require_machine();
  const Threads threads(facts.threads);
  const TensorFile constants(facts.constants, facts.constants_bytes, "constants");
  require_weights(facts.name, facts.weights, weights);
  check(dnnl_engine_create(&engine_, dnnl_cpu, 0), "the CPU");
  Known known;
  try {
    for (const PlanSource& source : facts.plans) {
      Loaded& loaded = plans_.emplace_back();
      loaded.plan = std::make_unique<Plan>(engine_, source.batch);
      source.build(*loaded.plan);
      auto region = std::make_unique<Region>(loaded.plan->constant_bytes);
      for (const Piece& piece : loaded.plan->pieces)
        loaded.at.push_back(piece.place == Place::constant ? region->data() + piece.offset : nullptr);
      load(loaded, weights, constants);
      if (facts.plans.size() > 1)
        share(loaded, known);  // its own memory is given back
      else
        regions_.push_back(std::move(region));
    }
  } catch (...) {
    plans_.clear();
    dnnl_engine_destroy(engine_);
    throw;
  }
}

Network::~Network() {
  plans_.clear();  // before their engine
  dnnl_engine_destroy(engine_);
}

/// Fills what iterations do not change: step by step what is computed from weights, where each is
/// read when it is first needed; then what iterations read as it is.
void Network::load(Loaded& loaded, const TensorFile& weights, const TensorFile& constants) {
  const Plan& plan = *loaded.plan;
  const Region once(plan.once_bytes), scratch(plan.scratch_bytes);
  std::vector<char*> at = loaded.at;
  for (std::size_t i = 0; i < at.size(); ++i)
    if (plan.pieces[i].place == Place::once) at[i] = once.data() + plan.pieces[i].offset;
  std::vector<const StoredTensor*> source(plan.pieces.size(), nullptr);
  for (const auto& [piece, name] : plan.weights)
    for (const Form& form : facts.weights)
      if (form.name == name) source[static_cast<std::size_t>(piece)] = find(weights, form);
  for (const auto& [piece, name] : plan.contents) source[static_cast<std::size_t>(piece)] = constants.find(name);
  const auto fill = [&](std::size_t piece) {
    const StoredTensor* const from = std::exchange(source[piece], nullptr);
    if (from == nullptr) return;
    if (from->bytes > plan.pieces[piece].bytes)
      throw Failure(Status::internal, from->name + " is larger than its place");
    std::memcpy(at[piece], from->data, from->bytes);
  };
  const Bound bound(plan, plan.loading, at, scratch.data());
  for (std::size_t i = 0; i < plan.loading.size(); ++i) {
    const Step& step = plan.loading[i];
    for (const Argument& argument : step.arguments) fill(static_cast<std::size_t>(argument.value.piece));
    for (const Value value : step.values) fill(static_cast<std::size_t>(value.piece));
    bound.run(i);
  }
  for (std::size_t piece = 0; piece < source.size(); ++piece)
    if (plan.pieces[piece].place == Place::constant) fill(piece);
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
      return place.first == pieces[i].bytes && std::memcmp(place.second, loaded.at[i], place.first) == 0;
    });
    if (same != known[key].end()) {
      loaded.at[i] = same->second;
    } else {
      kept.push_back(i);
      bytes += rounded(pieces[i].bytes);
    }
  }
  auto region = std::make_unique<Region>(bytes);
  char* next = region->data();
  for (const std::size_t i : kept) {
    std::memcpy(next, loaded.at[i], pieces[i].bytes);
    loaded.at[i] = next;
    known[static_cast<std::size_t>(pieces[i].key)].emplace_back(pieces[i].bytes, next);
    next += rounded(pieces[i].bytes);
  }
  regions_.push_back(std::move(region));
}

// ---------------------------------------------------------------- contexts

Context::Context(std::shared_ptr<const Network> network) : network_(std::move(network)) {
  std::size_t arena = 0, scratch = 0;
  for (const Network::Loaded& loaded : network_->plans()) {
    arena = std::max(arena, loaded.plan->arena_bytes);
    scratch = std::max(scratch, loaded.plan->scratch_bytes);
  }
  arena_ = std::make_unique<Region>(arena);
  scratch_ = std::make_unique<Region>(scratch);
  for (const Network::Loaded& loaded : network_->plans()) {
    const Plan& plan = *loaded.plan;
    std::vector<char*> at = loaded.at;
    for (std::size_t i = 0; i < at.size(); ++i)
      if (plan.pieces[i].place == Place::arena) at[i] = arena_->data() + plan.pieces[i].offset;
    bound_.push_back(std::make_unique<Bound>(plan, plan.steps, at, scratch_->data()));
  }
  const Facts& facts = network_->facts;
  staged_.resize(facts.inputs.size() + facts.outputs.size() + facts.changed.size());
}

Context::~Context() = default;

/// The input with its last sample repeated up to that size.
const void* Context::padded(const Form& form, const void* given, std::int64_t batch, int size,
                            std::size_t place) {
  if (form.shape.empty() || form.shape[0] >= 0) return given;
  std::vector<char>& staged = staged_[place];
  const std::size_t sample = bytes_of(form, 1), there = bytes_of(form, batch);
  staged.resize(bytes_of(form, size));
  std::memcpy(staged.data(), given, there);
  for (std::size_t at = there; at < staged.size(); at += sample)
    std::memcpy(staged.data() + at, staged.data() + there - sample, sample);
  return staged.data();
}

void Context::run(std::int64_t batch, const void* const* inputs, void* const* outputs) {
  const Facts& facts = network_->facts;
  const auto largest = facts.plans.back().batch;
  if (batch < 1 || batch > largest || (!facts.pads && batch != largest))
    throw Failure(Status::call, "a batch of " + std::to_string(batch) + " is not " +
                                    (facts.pads ? "1 to " : "") + std::to_string(largest));
  std::size_t index = 0;
  while (facts.plans[index].batch < batch) ++index;
  const int size = facts.plans[index].batch;
  Bound& bound = *bound_[index];
  const Threads threads(facts.threads);
  std::vector<const void*> sources(inputs, inputs + facts.inputs.size());
  std::vector<void*> targets(outputs, outputs + facts.outputs.size());
  const auto stage = [&](const Form& form, std::size_t place) {
    std::vector<char>& staged = staged_[facts.inputs.size() + place];
    staged.resize(bytes_of(form, size));
    return staged.data();
  };
  if (size != batch) {
    for (std::size_t i = 0; i < sources.size(); ++i)
      sources[i] = padded(facts.inputs[i], inputs[i], batch, size, i);
    for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = stage(facts.outputs[i], i);
  }
  // What inputs become is written to them at the end: steps may still read them.
  for (const int place : facts.changed)
    targets.push_back(stage(facts.inputs[static_cast<std::size_t>(place)], targets.size()));
  bound.point(sources.data(), targets.data());
  bound.run();
  for (std::size_t i = 0; size != batch && i < facts.outputs.size(); ++i)
    std::memcpy(outputs[i], targets[i], bytes_of(facts.outputs[i], batch));
  for (std::size_t i = 0; i < facts.changed.size(); ++i) {
    const auto place = static_cast<std::size_t>(facts.changed[i]);
    std::memcpy(const_cast<void*>(inputs[place]), targets[facts.outputs.size() + i],
                bytes_of(facts.inputs[place], batch));
  }
}

}  // namespace golow
