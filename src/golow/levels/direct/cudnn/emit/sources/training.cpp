#include "training.h"

#include <algorithm>
#include <cstring>

#include "filling.h"

namespace golow {
namespace {

bool is_weight(const State& state) { return state.kind == "parameter" || state.kind == "buffer"; }
bool is_saved(const State& state) { return state.kind != "learning_rate" && state.kind != "dropout"; }

/// In whatever streams they are.
void wait_for_steps() { check(cuCtxSynchronize(), "cuCtxSynchronize"); }

std::size_t plain_bytes(const State& state) { return bytes_of(state.form, 1); }

/// A number in the type of the state.
Array number_of(const State& state, double value) {
  Array made(state.storage.type, {});
  const auto whole = static_cast<std::int32_t>(value);
  const auto real = static_cast<float>(value);
  if (state.storage.type == Type::int32)
    std::memcpy(made.data(), &whole, sizeof whole);
  else
    std::memcpy(made.data(), &real, sizeof real);
  return made;
}

}  // namespace

/// The plan of a batch, as one CUDA graph. ends: inputs, targets and the loss among its pieces, in the
/// order of the graph's places.
struct Training::OneBatch {
  std::unique_ptr<Plan> plan;
  std::unique_ptr<Region> constants, kept;
  Addresses at;
  std::vector<const Piece*> ends;
  std::unique_ptr<PointedGraph> graph;
};

// ---------------------------------------------------------------- building

Training::Training(const TrainingFacts& facts, const Facts& evaluation, const std::string& file)
    : facts_(facts), evaluation_(evaluation), rate_(facts.rate),
      constants_(facts.constants, facts.constants_bytes, "constants") {
  const Current current(device_);
  require_target(facts.name, facts.target, device_);
  try {
    machine_ = std::make_unique<Machine>(device_, constants_);
    turns_ = std::make_unique<Turns>();
    build();
    load(file);
  } catch (...) {
    release();
    throw;
  }
}

Training::~Training() {
  const Current current(device_);
  cuCtxSynchronize();  // what was enqueued may still run
  release();
}

void Training::release() {
  evaluated_.reset();
  network_.reset();
  batches_.clear();
  for (auto* held : {&state_, &given_}) held->clear();
  arena_.reset();
  loss_.reset();
  turns_.reset();
  machine_.reset();
}

/// Plans run one after the other: they share the memory of an iteration.
void Training::build() {
  std::size_t arena = 0;
  std::vector<std::size_t> state;
  for (const PlanSource& source : facts_.plans) {
    OneBatch& one = *batches_.emplace_back(std::make_unique<OneBatch>());
    one.plan = std::make_unique<Plan>(*machine_, source.batch);
    source.build(*one.plan);
    arena = std::max(arena, one.plan->arena_bytes);
    for (const Piece& piece : one.plan->pieces) {
      if (piece.place != Place::state) continue;
      const auto memory = static_cast<std::size_t>(piece.key);
      if (memory >= state.size()) state.resize(memory + 1, 0);
      state[memory] = std::max(state[memory], static_cast<std::size_t>(piece.offset) + piece.bytes);
    }
  }
  arena_ = std::make_unique<Region>(arena);
  loss_ = std::make_unique<Region>(sizeof(float));
  for (const std::size_t bytes : state) state_.push_back(std::make_unique<Region>(bytes));
  for (const auto& one : batches_) bind(*one);
}

/// The iteration that loads the libraries' kernels changes the state: it is loaded afterwards.
void Training::bind(OneBatch& one) {
  const Plan& plan = *one.plan;
  one.constants = std::make_unique<Region>(plan.constant_bytes);
  one.kept = std::make_unique<Region>(plan.kept_bytes);
  std::vector<std::unique_ptr<Region>> standing_in;
  std::vector<Span> places;
  for (const Piece& piece : plan.pieces) {
    const auto offset = static_cast<CUdeviceptr>(piece.offset);
    switch (piece.place) {
      case Place::arena: one.at.push_back(arena_->address() + offset); break;
      case Place::constant: one.at.push_back(one.constants->address() + offset); break;
      case Place::kept: one.at.push_back(one.kept->address() + offset); break;
      case Place::state: one.at.push_back(state_[static_cast<std::size_t>(piece.key)]->address() + offset); break;
      case Place::once: one.at.push_back(0); break;
      default:
        standing_in.push_back(std::make_unique<Region>(piece.bytes));
        one.at.push_back(standing_in.back()->address());
        places.push_back({one.at.back(), standing_in.back()->bytes()});
        one.ends.push_back(&piece);
    }
  }
  const auto enqueue_all = [&] {
    for (const Step& step : plan.steps) golow::enqueue(step, *machine_, one.at);
  };
  enqueue_all();  // libraries load their kernels on first use, not inside a graph
  machine_->stream.wait();
  one.graph = std::make_unique<PointedGraph>(machine_->stream.handle(), enqueue_all, places, machine_->own);
  machine_->stream.wait();
}

// ---------------------------------------------------------------- steps

const Training::OneBatch& Training::of(std::int64_t batch) const {
  std::string there;
  for (const auto& one : batches_) {
    if (one->plan->batch == batch) return *one;
    there += (there.empty() ? "" : ", ") + std::to_string(one->plan->batch);
  }
  throw Failure(Status::call, "there is no plan for a batch of " + std::to_string(batch) + "; there are " + there);
}

void Training::enqueue(std::int64_t batch, const void* const* inputs, const void* const* targets, void* loss,
                       CUstream stream) {
  const OneBatch& one = of(batch);
  const Current current(device_);
  is_evaluated_ = false;
  Addresses addresses;
  for (const Piece* const end : one.ends) {
    const auto number = static_cast<std::size_t>(end->offset), count = facts_.inputs.size();
    const void* const at = end->place == Place::output ? loss : number < count ? inputs[number] : targets[number - count];
    addresses.push_back(reinterpret_cast<CUdeviceptr>(at));
  }
  const bool captured = is_capturing(stream);  // that graph orders what is in it by itself
  is_captured_ = is_captured_ || captured;
  if (!captured) turns_->begin(stream);
  one.graph->launch(addresses, stream);
  if (!captured) turns_->end(stream);
}

float Training::step(std::int64_t batch, const void* const* inputs, const void* const* targets) {
  of(batch);
  const Current current(device_);
  const std::int64_t largest = facts_.plans.back().batch;
  std::size_t place = 0;
  const auto upload = [&](const std::vector<Form>& forms, const void* const* from) {
    std::vector<const void*> found;
    for (std::size_t i = 0; i < forms.size(); ++i, ++place) {
      if (place == given_.size()) given_.push_back(std::make_unique<Region>(bytes_of(forms[i], largest)));
      machine_->stream.upload(given_[place]->address(), from[i], bytes_of(forms[i], batch));
      found.push_back(reinterpret_cast<const void*>(given_[place]->address()));
    }
    return found;
  };
  const std::vector<const void*> given = upload(facts_.inputs, inputs), wanted = upload(facts_.targets, targets);
  const auto landing = reinterpret_cast<void*>(loss_->address());
  enqueue(batch, given.data(), wanted.data(), landing, machine_->stream.handle());
  float loss = 0;
  machine_->stream.download(&loss, loss_->address(), sizeof loss);
  return loss;
}

/// Its weights are folded and packed for inference once between steps.
void Training::evaluate(std::int64_t batch, const void* const* inputs, void* const* outputs) {
  const Current current(device_);
  if (!is_evaluated_) {
    wait_for_steps();
    const Saved present = saved(false);
    const TensorFile weights(present.tensors, "the training");
    if (network_ == nullptr) {
      network_ = std::make_shared<Network>(evaluation_, weights);
      evaluated_ = std::make_unique<Context>(network_);
    } else {
      network_->reload(weights);
    }
    is_evaluated_ = !is_captured_;  // nobody knows when the caller's graph makes the next step
  }
  evaluated_->run(batch, inputs, outputs);
}

void Training::set_learning_rate(float rate) {
  const Current current(device_);
  rate_ = rate;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &rate, sizeof bits);
  const CUstream stream = machine_->stream.handle();
  turns_->begin(stream);
  for (const State& state : facts_.state)
    if (state.kind == "learning_rate") check(cuMemsetD32Async(address(state), bits, 1, stream), "cuMemsetD32Async");
  turns_->end(stream);
}

// ---------------------------------------------------------------- the state

CUdeviceptr Training::address(const State& state) const {
  return state_[static_cast<std::size_t>(state.memory)]->address() + static_cast<CUdeviceptr>(state.offset);
}

void Training::write(const State& state, const Array& array) {
  const std::vector<char> bytes = stored(array, state.storage);
  machine_->stream.upload(address(state), bytes.data(), bytes.size());
}

std::vector<char> Training::content(const State& state) const {
  std::vector<char> bytes(state.storage.bytes());
  machine_->stream.download(bytes.data(), address(state), bytes.size());
  const Array plain = unstored(bytes, state.storage);
  return {plain.data(), plain.data() + plain_bytes(state)};
}

void Training::load(const std::string& path) {
  const Current current(device_);
  const TensorFile file(path);
  std::vector<Form> needed = facts_.beside;
  for (const State& state : facts_.state)
    if (is_weight(state) || (is_saved(state) && find(file, state.form) != nullptr)) needed.push_back(state.form);
  require_weights(facts_.name, needed, file);
  wait_for_steps();
  is_evaluated_ = false;
  beside_.clear();
  for (const Form& form : facts_.beside) {
    const StoredTensor& from = *find(file, form);
    beside_.emplace_back(from.data, from.data + from.bytes);
  }
  for (const auto& region : state_) 
    check(cuMemsetD8Async(region->address(), 0, region->bytes(), machine_->stream.handle()), "cuMemsetD8Async");
  for (const State& state : facts_.state) {
    const StoredTensor* const from = is_saved(state) ? find(file, state.form) : nullptr;
    if (from != nullptr)
      write(state, Array(*from));
    else if (state.first != 0)
      write(state, number_of(state, state.first));
  }
  for (const auto& one : batches_) {
    fill(*one->plan, one->at, facts_.beside, file, constants_, *machine_);
    for (const Step& step : one->plan->renewing) golow::enqueue(step, *machine_, one->at);
  }
  machine_->stream.wait();
  set_learning_rate(rate_);
}

void Training::save(const std::string& path) {
  const Current current(device_);
  wait_for_steps();
  write_tensors(path, saved(true).tensors);
}

/// whole: with what the optimizer keeps.
Training::Saved Training::saved(bool whole) {
  Saved made;
  const auto add = [&](const Form& form, const char* data) {
    std::vector<const char*> names = {form.name};
    names.insert(names.end(), form.also.begin(), form.also.end());
    for (const char* const name : names) made.tensors.push_back({name, form.dtype, form.shape, data, bytes_of(form, 1)});
  };
  made.memory.reserve(facts_.state.size());
  for (const State& state : facts_.state)
    if (is_weight(state) || (whole && is_saved(state))) add(state.form, made.memory.emplace_back(content(state)).data());
  for (std::size_t i = 0; i < beside_.size(); ++i) add(facts_.beside[i], beside_[i].data());
  return made;
}

void Training::read(const std::string& name, void* into, std::size_t bytes) {
  const Current current(device_);
  for (const State& state : facts_.state) {
    if (!is_saved(state) || name != state.form.name) continue;
    if (bytes != plain_bytes(state))
      throw Failure(Status::call, name + " has " + std::to_string(plain_bytes(state)) + " bytes, not " +
                                      std::to_string(bytes));
    wait_for_steps();
    const std::vector<char> found = content(state);
    std::memcpy(into, found.data(), bytes);
    return;
  }
  throw Failure(Status::call, "the training changes no " + name);
}

}  // namespace golow
