#include "bound.h"

#include <omp.h>

#include "failure.h"

extern "C" void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);

namespace golow {
namespace {

/// Kernels compute with oneDNN's threads, which are those of GNU's OpenMP library.
const Pool pool = {GOMP_parallel, omp_get_thread_num, omp_get_num_threads};

}  // namespace

void require_machine() {
  __builtin_cpu_init();
  const bool there = kernels_need == 512  ? __builtin_cpu_supports("avx512f")
                     : kernels_need == 2 ? __builtin_cpu_supports("avx2")
                                         : true;
  if (!there)
    throw Failure(Status::library, "the kernels were compiled for another CPU; build them again here");
  if (dnnl_version()->major != DNNL_VERSION_MAJOR)
    throw Failure(Status::library, "the library is oneDNN " + std::to_string(dnnl_version()->major) +
                                      "; this was built for " + std::to_string(DNNL_VERSION_MAJOR));
}

Bound::Bound(const Plan& plan, const std::vector<Step>& steps, const std::vector<char*>& at, char* scratch)
    : plan_(plan), at_(at), scratch_(scratch) {
  check(dnnl_stream_create(&stream_, plan.engine, dnnl_stream_default_flags), "stream");
  calls_.reserve(steps.size());
  try {
    for (const Step& step : steps) bind(step);
  } catch (...) {
    release();
    throw;
  }
}
void Bound::point(const void* const* inputs, void* const* outputs) {
  for (const Given& given : given_) {
    const Piece& piece = piece_of(given.value);
    const auto number = static_cast<std::size_t>(piece.offset);
    const void* const start = piece.place == Place::input ? inputs[number] : outputs[number];
    char* const address = static_cast<char*>(const_cast<void*>(start)) + given.value.offset;
    if (given.memory != nullptr)
      check(dnnl_memory_set_data_handle(given.memory, address), "an input");
    else
      calls_[given.call].pointers[given.position] = address;
  }
}

void Bound::one(const Call& call) const {
  const Step& step = *call.step;
  if (step.primitive != nullptr) {
    const auto count = static_cast<int>(call.arguments.size());
    const dnnl_status_t status =
        dnnl_primitive_execute(step.primitive, stream_, count, call.arguments.data());
    if (status != dnnl_success) check(status, step.name);
  } else if (step.kernel != nullptr) {
    step.kernel(call.pointers.data(), step.numbers.data(), &pool);
  } else {
    step.function(call.pointers.data());
  }
}

void Bound::bind(const Step& step) {
  Call& call = calls_.emplace_back(Call{&step, {}, {}});
  for (const Value value : step.values) {
    if (is_given(value)) given_.push_back({value, nullptr, calls_.size() - 1, call.pointers.size()});
    call.pointers.push_back(address(value));
  }
  const std::size_t needed =
      step.primitive == nullptr ? 0 : dnnl_memory_desc_get_size(step.scratchpad);
  bool has_scratchpad = false;
  for (const Argument& argument : step.arguments) {
    Layout layout = argument.layout;
    char* at = address(argument.value);
    if (argument.number == DNNL_ARG_SCRATCHPAD) {
      if (needed == 0) continue;
      has_scratchpad = true;
      layout = step.scratchpad;
      if (needed > piece_of(argument.value).bytes) at = scratch_;
    }
    const dnnl_memory_t made = memory(layout, at, step.name);
    call.arguments.push_back({argument.number, made});
    if (is_given(argument.value)) given_.push_back({argument.value, made, 0, 0});
  }
  if (needed > 0 && !has_scratchpad)
    call.arguments.push_back({DNNL_ARG_SCRATCHPAD, memory(step.scratchpad, scratch_, step.name)});
}

dnnl_memory_t Bound::memory(Layout layout, char* at, const std::string& name) {
  dnnl_memory_t made = nullptr;
  check(dnnl_memory_create(&made, layout, plan_.engine, at), name);
  memories_.push_back(made);
  return made;
}

void Bound::release() {
  for (const dnnl_memory_t made : memories_) dnnl_memory_destroy(made);
  dnnl_stream_destroy(stream_);
}

}  // namespace golow
