#include "plan.h"

#include <algorithm>

namespace golow {
namespace {

const char* name_of(dnnl_status_t status) {
  switch (status) {
    case dnnl_success: return "success";
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "unimplemented";
    case dnnl_runtime_error: return "runtime error";
    default: return "not required";
  }
}

}  // namespace

void check(dnnl_status_t status, const std::string& what) {
  if (status == dnnl_success) return;
  throw Failure(status == dnnl_out_of_memory ? Status::memory : Status::library,
                what + ": oneDNN: " + name_of(status));
}

Dims::Dims(std::initializer_list<std::int64_t> given) : axes(static_cast<int>(given.size())) {
  std::copy(given.begin(), given.end(), values);
}

Attributes::Attributes(std::initializer_list<PostOp> after) {
  const char* const what = "attributes";
  check(dnnl_primitive_attr_create(&handle_), what);
  // The scratchpad is part of the plan's memory.
  check(dnnl_primitive_attr_set_scratchpad_mode(handle_, dnnl_scratchpad_mode_user), what);
  if (after.size() == 0) return;
  check(dnnl_post_ops_create(&chain_), what);
  for (const PostOp& item : after) {
    if (item.kind == dnnl_sum)
      check(dnnl_post_ops_append_sum(chain_, item.alpha, 0, dnnl_data_type_undef), what);
    else if (item.kind == dnnl_binary)
      check(dnnl_post_ops_append_binary(chain_, item.algorithm, item.layout), what);
    else
      check(dnnl_post_ops_append_eltwise(chain_, item.algorithm, item.alpha, item.beta), what);
  }
  check(dnnl_primitive_attr_set_post_ops(handle_, chain_), what);
}

Attributes::~Attributes() {
  if (chain_ != nullptr) dnnl_post_ops_destroy(chain_);
  if (handle_ != nullptr) dnnl_primitive_attr_destroy(handle_);
}

Plan::~Plan() {
  for (const std::vector<Step>* part : {&loading, &steps})
    for (const Step& step : *part)
      if (step.primitive != nullptr) dnnl_primitive_destroy(step.primitive);
  for (const dnnl_primitive_desc_t made : descriptions_) dnnl_primitive_desc_destroy(made);
  for (const dnnl_memory_desc_t made : layouts_) dnnl_memory_desc_destroy(made);
}

// ---------------------------------------------------------------- memory

void Plan::memory(std::size_t arena, std::size_t once, std::size_t constant) {
  arena_bytes = arena, once_bytes = once, constant_bytes = constant;
}

Value Plan::piece(Place place, std::int64_t offset, std::size_t bytes, int key) {
  pieces.push_back({place, offset, bytes, key});
  return {static_cast<int>(pieces.size()) - 1};
}

// ---------------------------------------------------------------- layouts

Layout Plan::kept(dnnl_memory_desc_t made, dnnl_status_t status) {
  check(status, layer_);
  layouts_.push_back(made);
  return made;
}

Layout Plan::strided(dnnl_data_type_t type, const Dims& shape, const Dims& strides) {
  dnnl_memory_desc_t made = nullptr;
  const dnnl_status_t status =
      dnnl_memory_desc_create_with_strides(&made, shape.axes, shape.values, type, strides.values);
  return kept(made, status);
}

Layout Plan::tagged(dnnl_data_type_t type, const Dims& shape, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t made = nullptr;
  const dnnl_status_t status = dnnl_memory_desc_create_with_tag(&made, shape.axes, shape.values, type, tag);
  return kept(made, status);
}

Layout Plan::reshaped(Layout base, const Dims& shape) {
  dnnl_memory_desc_t made = nullptr;
  const dnnl_status_t status = dnnl_memory_desc_reshape(&made, base, shape.axes, shape.values);
  return kept(made, status);
}

Layout Plan::permuted(Layout base, const std::vector<int>& where) {
  dnnl_memory_desc_t made = nullptr;
  const dnnl_status_t status = dnnl_memory_desc_permute_axes(&made, base, where.data());
  return kept(made, status);
}

Layout Plan::part(Layout base, const Dims& shape, const Dims& offsets) {
  dnnl_memory_desc_t made = nullptr;
  const dnnl_status_t status =
      dnnl_memory_desc_create_submemory(&made, base, shape.values, offsets.values);
  return kept(made, status);
}

namespace {

bool is_as_expected(Layout layout, const Expected& expected) {
  if (dnnl_memory_desc_get_size(layout) != expected.bytes) return false;
  if (expected.strides.empty()) return true;
  const dnnl_dims_t *strides = nullptr, *sizes = nullptr, *axes = nullptr;
  int count = 0;
  if (dnnl_memory_desc_query(layout, dnnl_query_strides, &strides) != dnnl_success) return false;
  if (!std::equal(expected.strides.begin(), expected.strides.end(), *strides)) return false;
  dnnl_memory_desc_query(layout, dnnl_query_inner_nblks_s32, &count);
  if (static_cast<std::size_t>(count) != expected.blocks.size()) return false;
  if (count == 0) return true;
  dnnl_memory_desc_query(layout, dnnl_query_inner_blks, &sizes);
  dnnl_memory_desc_query(layout, dnnl_query_inner_idxs, &axes);
  for (int i = 0; i < count; ++i)
    if (expected.blocks[static_cast<std::size_t>(i)] != std::pair<int, int>((*axes)[i], (*sizes)[i]))
      return false;
  return true;
}

}  // namespace

Layout Plan::asked(Description description, dnnl_query_t query, int index, const Expected& expected) {
  dnnl_memory_desc_t copy = nullptr;
  const Layout found = dnnl_primitive_desc_query_md(description, query, index);
  const dnnl_status_t status = dnnl_memory_desc_clone(&copy, found);
  const Layout layout = kept(copy, status);
  if (is_as_expected(layout, expected)) return layout;
  throw Failure(Status::library,
                layer_ + ": oneDNN wants another layout here than where this program was written "
                         "(golow emit), for another CPU or version of oneDNN; write it again here");
}

// ---------------------------------------------------------------- steps

void Plan::layer(const char* name, const char* operation) {
  layer_ = std::string(name) + " (" + operation + ")";
}

Description Plan::reorder(Layout source, Layout target) {
  const auto create = [&](dnnl_primitive_desc_t* made, dnnl_engine_t, const_dnnl_primitive_attr_t attributes) {
    return dnnl_reorder_primitive_desc_create(made, source, engine, target, engine, attributes);
  };
  return describe(create, {});
}

void Plan::skip(Description description, int count) {
  while (count-- > 0)
    check(dnnl_primitive_desc_next_impl(const_cast<dnnl_primitive_desc_t>(description)), layer_);
}

Step Plan::named() const {
  Step step;
  step.name = layer_;
  return step;
}

Step Plan::of_primitive(Description description, std::initializer_list<Argument> arguments) {
  Step step = named();
  step.arguments = arguments;
  step.scratchpad = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
  const std::size_t needed = dnnl_memory_desc_get_size(step.scratchpad);
  std::size_t planned = 0;
  for (const Argument& argument : arguments)
    if (argument.number == DNNL_ARG_SCRATCHPAD)
      planned = pieces[static_cast<std::size_t>(argument.value.piece)].bytes;
  if (needed > planned) scratch_bytes = std::max(scratch_bytes, needed);
  check(dnnl_primitive_create(&step.primitive, description), layer_);
  return step;
}

void Plan::run(Description description, std::initializer_list<Argument> arguments) {
  steps.push_back(of_primitive(description, arguments));
}

void Plan::load(Description description, std::initializer_list<Argument> arguments) {
  loading.push_back(of_primitive(description, arguments));
}

void Plan::run(Kernel kernel, std::initializer_list<Value> values, std::initializer_list<long> numbers) {
  Step step = named();
  step.kernel = kernel, step.values = values, step.numbers = numbers;
  steps.push_back(std::move(step));
}

void Plan::load(Kernel kernel, std::initializer_list<Value> values, std::initializer_list<long> numbers) {
  run(kernel, values, numbers);
  loading.push_back(std::move(steps.back()));
  steps.pop_back();
}

void Plan::run(Function function, std::initializer_list<Value> values) {
  Step step = named();
  step.function = std::move(function), step.values = values;
  steps.push_back(std::move(step));
}

void Plan::load(Function function, std::initializer_list<Value> values) {
  run(std::move(function), values);
  loading.push_back(std::move(steps.back()));
  steps.pop_back();
}

}  // namespace golow
