#include "training.h"

#include <algorithm>
#include <cstring>

namespace golow {
namespace {

bool is_weight(const State& state) { return state.kind == "parameter" || state.kind == "buffer"; }
bool is_saved(const State& state) { return state.kind != "learning_rate"; }

/// Reorders a tensor from one layout to another.
void reorder(dnnl_engine_t engine, Layout from, char* source, Layout to, char* target) {
  const char* const what = "the state";
  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_primitive_desc_t description = nullptr;
  dnnl_primitive_t primitive = nullptr;
  dnnl_memory_t memories[2] = {nullptr, nullptr};
  dnnl_stream_t stream = nullptr;
  const auto all = [&]() -> dnnl_status_t {
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status == dnnl_success)
      status = dnnl_reorder_primitive_desc_create(&description, from, engine, to, engine, attributes);
    if (status == dnnl_success) status = dnnl_primitive_create(&primitive, description);
    if (status == dnnl_success) status = dnnl_memory_create(&memories[0], from, engine, source);
    if (status == dnnl_success) status = dnnl_memory_create(&memories[1], to, engine, target);
    if (status == dnnl_success) status = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
    const dnnl_exec_arg_t given[] = {{DNNL_ARG_FROM, memories[0]}, {DNNL_ARG_TO, memories[1]}};
    if (status == dnnl_success) status = dnnl_primitive_execute(primitive, stream, 2, given);
    return status == dnnl_success ? dnnl_stream_wait(stream) : status;
  };
  const dnnl_status_t status = all();
  if (stream != nullptr) dnnl_stream_destroy(stream);
  for (const dnnl_memory_t made : memories)
    if (made != nullptr) dnnl_memory_destroy(made);
  if (primitive != nullptr) dnnl_primitive_destroy(primitive);
  if (description != nullptr) dnnl_primitive_desc_destroy(description);
  if (attributes != nullptr) dnnl_primitive_attr_destroy(attributes);
  check(status, what);
}

}  // namespace

// ---------------------------------------------------------------- building

Training::Training(const TrainingFacts& facts, const Facts& evaluation, const std::string& file)
    : facts_(facts), evaluation_(evaluation), rate_(facts.rate) {
  require_machine();
  const Threads threads(facts.threads);
  std::size_t bytes = 0;
  for (const State& state : facts.state) bytes += rounded(state.bytes);
  state_ = std::make_unique<Region>(bytes);
  char* next = state_->data();
  for (const State& state : facts.state) {
    held_.push_back({next, no_layout, no_layout});
    next += rounded(state.bytes);
  }
  const TensorFile constants(facts.constants, facts.constants_bytes, "constants");
  check(dnnl_engine_create(&engine_, dnnl_cpu, 0), "the CPU");
  try {
    for (const PlanSource& source : facts.plans) build(source, constants);
    bind();
    load(file);
  } catch (...) {
    batches_.clear();  // before their engine
    dnnl_engine_destroy(engine_);
    throw;
  }
}

Training::~Training() {
  batches_.clear();
  dnnl_engine_destroy(engine_);
}

void Training::build(const PlanSource& source, const TensorFile& constants) {
  OneBatch& made = batches_.emplace_back();
  made.plan = std::make_unique<Plan>(engine_, source.batch);
  source.build(*made.plan);
  const Plan& plan = *made.plan;
  made.constants = std::make_unique<Region>(plan.constant_bytes);
  for (const auto& [number, name] : plan.contents) {
    const Piece& piece = plan.pieces[static_cast<std::size_t>(number)];
    const StoredTensor* const from = constants.find(name);
    if (from == nullptr || from->bytes > piece.bytes)
      throw Failure(Status::internal, name + " does not fit its place");
    std::memcpy(made.constants->data() + piece.offset, from->data, from->bytes);
  }
  for (const HeldPiece& item : plan.states) {
    const auto number = static_cast<std::size_t>(plan.pieces[static_cast<std::size_t>(item.piece)].offset);
    held_[number].layout = item.layout, held_[number].plain = item.plain;
  }
}

/// Plans run one after the other: they share the memory of an iteration.
void Training::bind() {
  std::size_t arena = 0, scratch = 0;
  for (const OneBatch& one : batches_) {
    arena = std::max(arena, one.plan->arena_bytes);
    scratch = std::max(scratch, one.plan->scratch_bytes);
  }
  arena_ = std::make_unique<Region>(arena);
  scratch_ = std::make_unique<Region>(scratch);
  for (OneBatch& one : batches_) {
    std::vector<char*> at;
    for (const Piece& piece : one.plan->pieces) {
      const auto place = static_cast<std::size_t>(piece.offset);
      switch (piece.place) {
        case Place::arena: at.push_back(arena_->data() + place); break;
        case Place::constant: at.push_back(one.constants->data() + place); break;
        case Place::state: at.push_back(held_[place].at); break;
        default: at.push_back(nullptr);
      }
    }
    one.bound = std::make_unique<Bound>(*one.plan, one.plan->steps, at, scratch_->data());
  }
}

// ---------------------------------------------------------------- steps

float Training::step(std::int64_t batch, const void* const* inputs, const void* const* targets) {
  const auto fits = [&](const OneBatch& one) { return one.plan->batch == batch; };
  const auto one = std::find_if(batches_.begin(), batches_.end(), fits);
  if (one == batches_.end()) {
    std::string there;
    for (const OneBatch& each : batches_) there += (there.empty() ? "" : ", ") + std::to_string(each.plan->batch);
    throw Failure(Status::call, "there is no plan for a batch of " + std::to_string(batch) + "; there are " + there);
  }
  evaluated_.reset();
  const Threads threads(facts_.threads);
  std::vector<const void*> given(inputs, inputs + facts_.inputs.size());
  given.insert(given.end(), targets, targets + facts_.targets.size());
  float loss = 0;
  void* const made[] = {&loss};
  one->bound->point(given.data(), made);
  one->bound->run();
  return loss;
}

/// Its weights are folded and packed for inference once between steps.
void Training::evaluate(std::int64_t batch, const void* const* inputs, void* const* outputs) {
  if (evaluated_ == nullptr) {
    const Threads threads(facts_.threads);
    const Saved present = saved();
    const auto network = std::make_shared<const Network>(evaluation_, TensorFile(present.tensors, "the training"));
    evaluated_ = std::make_unique<Context>(network);
  }
  evaluated_->run(batch, inputs, outputs);
}

/// It is stored with its sign reversed: a step adds.
void Training::set_learning_rate(float rate) {
  rate_ = rate;
  const float stored = -rate;
  for (std::size_t i = 0; i < held_.size(); ++i)
    if (facts_.state[i].kind == "learning_rate") std::memcpy(held_[i].at, &stored, sizeof stored);
}

// ---------------------------------------------------------------- the state

void Training::copy(const Held& held, const State& state, char* row_major, bool write) {
  if (held.layout == no_layout) {
    std::memcpy(write ? held.at : row_major, write ? row_major : held.at, plain_bytes(state));
  } else if (write) {
    reorder(engine_, held.plain, row_major, held.layout, held.at);
  } else {
    reorder(engine_, held.layout, held.at, held.plain, row_major);
  }
}

void Training::load(const std::string& path) {
  const Threads threads(facts_.threads);
  const TensorFile file(path);
  std::vector<Form> needed = facts_.beside;
  for (const State& state : facts_.state)
    if (is_weight(state) || (is_saved(state) && find(file, state.form) != nullptr)) needed.push_back(state.form);
  require_weights(facts_.name, needed, file);
  evaluated_.reset();
  beside_.clear();
  for (const Form& form : facts_.beside) {
    const StoredTensor& from = *find(file, form);
    beside_.emplace_back(from.data, from.data + from.bytes);
  }
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const State& state = facts_.state[i];
    const StoredTensor* const from = is_saved(state) ? find(file, state.form) : nullptr;
    std::memset(held_[i].at, 0, state.bytes);
    if (from == nullptr) continue;
    std::vector<char> aligned(from->data, from->data + from->bytes);
    copy(held_[i], state, aligned.data(), true);
  }
  set_learning_rate(rate_);
}

void Training::save(const std::string& path) {
  const Threads threads(facts_.threads);
  write_tensors(path, saved().tensors);
}

Training::Saved Training::saved() {
  Saved made;
  const auto add = [&](const Form& form, const char* data) {
    std::vector<const char*> names = {form.name};
    names.insert(names.end(), form.also.begin(), form.also.end());
    for (const char* const name : names) made.tensors.push_back({name, form.dtype, form.shape, data, bytes_of(form, 1)});
  };
  made.memory.reserve(held_.size());
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const State& state = facts_.state[i];
    if (!is_saved(state)) continue;
    std::vector<char>& data = made.memory.emplace_back(std::max<std::size_t>(plain_bytes(state), 1));
    copy(held_[i], state, data.data(), false);
    add(state.form, data.data());
  }
  for (std::size_t i = 0; i < beside_.size(); ++i) add(facts_.beside[i], beside_[i].data());
  return made;
}

void Training::read(const std::string& name, void* into, std::size_t bytes) {
  const Threads threads(facts_.threads);
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const State& state = facts_.state[i];
    if (!is_saved(state) || name != state.form.name) continue;
    if (bytes != plain_bytes(state))
      throw Failure(Status::call, name + " has " + std::to_string(plain_bytes(state)) + " bytes, not " +
                                      std::to_string(bytes));
    copy(held_[i], state, static_cast<char*>(into), false);
    return;
  }
  throw Failure(Status::call, "the training changes no " + name);
}

}  // namespace golow
