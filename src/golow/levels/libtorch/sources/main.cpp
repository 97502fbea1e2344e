// Runs the network of program.cpp on the example batches, outside golow: `./run [FOLDER [COUNT]]`.
//
// Inference compares the outputs with the stored ones and times COUNT iterations; training runs
// COUNT steps and prints the loss of each.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/core/InferenceMode.h>

#include "allocator.h"
#include "bundle.h"
#include "optimizer.h"
#include "program.h"
#include "safetensors.h"
#include "timing.h"

namespace golow {
namespace {

double difference(const Tensor& found, const Tensor& expected) {
  if (found.numel() == 0) return 0;
  const auto exact = at::TensorOptions(at::kCPU).dtype(at::kDouble);
  return found.to(exact).sub(expected.to(exact)).abs().max().item().toDouble();
}

/// The example's batches, and the results that golow stored for them, `expected/STEP/KIND/TARGET`.
struct Example {
  std::vector<Batch> batches;
  safetensors::Tensors tensors;

  const Tensor* expected(std::size_t step, const std::string& name) const {
    const auto found = tensors.find("expected/" + std::to_string(step) + "/" + name);
    return found == tensors.end() ? nullptr : &found->second;
  }
};

void infer(Program& program, const Placement& placement, const Example& example,
           std::size_t iterations) {
  double largest = 0;
  std::size_t compared = 0;
  for (std::size_t step = 0; step < example.batches.size(); ++step) {
    Result result;
    placement.step(program, example.batches[step], result);
    for (std::size_t i = 0; i < result.outputs.size(); ++i) {
      const Tensor* const expected = example.expected(step, "output/" + std::to_string(i));
      if (expected == nullptr) continue;
      largest = std::max(largest, difference(result.outputs[i], *expected));
      ++compared;
    }
  }
  std::printf("largest difference to the %zu stored outputs: %g\n", compared, largest);

  std::size_t position = 0;
  const Times times = time_iterations(
      placement.device,
      [&] {
        Result result;
        placement.step(program, example.batches[position++ % example.batches.size()], result);
      },
      iterations, 2, /*cold=*/false, Around{});
  std::vector<std::int64_t> samples = times.device.empty() ? times.host : times.device;
  std::sort(samples.begin(), samples.end());
  std::printf("%.3f ms per iteration (median of %zu)\n",
              static_cast<double>(samples[samples.size() / 2]) * 1e-6, samples.size());
}

void train(Program& program, const Example& example, const Optimizer& optimizer, std::size_t steps) {
  for (std::size_t step = 0; step < steps; ++step) {
    // The stored loss was computed with dropout off, so the first step runs with dropout off, too.
    program.random_layers = step > 0;
    Result result;
    program.step(example.batches[step % example.batches.size()], result);
    update_parameters(program, optimizer);
    clear_gradients(program);
    std::printf("step %zu: loss %.6f\n", step + 1, result.loss.item().toDouble());
    const Tensor* const expected = example.expected(0, "loss/loss");
    if (step == 0 && expected != nullptr)
      std::printf("difference to the stored loss: %g\n", difference(result.loss, *expected));
  }
}

int run(const std::string& folder, std::size_t count) {
  keep_memory();
  const c10::InferenceMode no_autograd;
  const auto program = make_program();
  const Workload workload = read_workload(folder + "/workload.json");
  require_match(*program, workload);
  workload.placement.take_effect();
  load_state(*program, workload.placement, folder + "/weights.safetensors", folder + "/constants.safetensors");
  Example example;
  example.tensors = safetensors::read(folder + "/example.safetensors");
  example.batches = collect_batches(example.tensors, workload.batches, workload.placement);
  if (program->trains)
    train(*program, example, workload.optimizer, count);
  else
    infer(*program, workload.placement, example, count);
  return 0;
}

}  // namespace
}  // namespace golow

int main(int count, char** arguments) {
  try {
    const std::int64_t iterations = count > 2 ? std::atoll(arguments[2]) : 20;
    if (iterations < 1) throw std::invalid_argument("COUNT must be 1 or more");
    return golow::run(count > 1 ? arguments[1] : ".", static_cast<std::size_t>(iterations));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
