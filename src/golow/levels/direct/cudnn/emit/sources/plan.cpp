#include "plan.h"

namespace golow {

void Plan::memory(std::size_t arena, std::size_t once, std::size_t constant, std::size_t kept) {
  arena_bytes = arena, once_bytes = once, constant_bytes = constant, kept_bytes = kept;
}

Value Plan::piece(Place place, std::int64_t offset, std::size_t bytes, int key) {
  pieces.push_back({place, offset, bytes, key});
  return {static_cast<int>(pieces.size()) - 1};
}

void Plan::layer(const char* name, const char* operation) {
  layer_ = std::string(name) + " (" + operation + ")";
}

void Plan::run(const Kernel& kernel, const Launch& launch, std::initializer_list<Value> pointers,
               std::initializer_list<Scalar> numbers) {
  const CUfunction function = machine_.kernels.load(kernel, launch.shared > 0);
  machine_.own.insert(kernel.symbol);
  const std::vector<Scalar> scalars = numbers;
  steps.push_back({layer_, pointers, [=, name = layer_](Machine& machine, const Addresses& addresses) {
                     machine.kernels.launch(function, launch, addresses, scalars, machine.stream.handle(), name);
                   }});
}

void Plan::run(const LibraryPlan& plan, std::initializer_list<Value> operands, Value workspace) {
  machine_.libraries.load(plan, layer_);
  std::vector<Value> values = operands;
  values.push_back(workspace);
  steps.push_back({layer_, values, [&plan, name = layer_](Machine& machine, Addresses addresses) {
                     const CUdeviceptr space = addresses.back();
                     addresses.pop_back();
                     machine.libraries.run(plan, addresses, space, name);
                   }});
}

void Plan::run(const Product& product, std::initializer_list<Value> operands, Value workspace) {
  machine_.libraries.load(product, layer_);
  std::vector<Value> values = operands;
  values.push_back(workspace);
  steps.push_back({layer_, values, [&product, name = layer_](Machine& machine, const Addresses& at) {
                     machine.libraries.run(product, {at[0], at[1], at[2], at[3], at[4]}, at[5], name);
                   }});
}

void Plan::move_to_loading() {
  loading.push_back(std::move(steps.back()));
  steps.pop_back();
}

void enqueue(const Step& step, Machine& machine, const Addresses& at) {
  Addresses addresses;
  for (const Value value : step.values)
    addresses.push_back(value.piece < 0 ? 0
                                        : at[static_cast<std::size_t>(value.piece)] +
                                              static_cast<CUdeviceptr>(value.offset));
  step.run(machine, addresses);
}

}  // namespace golow
