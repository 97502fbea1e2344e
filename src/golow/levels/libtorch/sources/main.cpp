// Runs the network of program.cpp outside golow: `./run [FOLDER [COUNT]] [--inputs FILE --outputs
// FILE]`.
//
// Inference compares the outputs of the example with the stored ones and times COUNT iterations, or
// runs on the inputs of a file (`input/0`, ...) and writes its outputs (`output/0`, ...) to another
// one. Training runs COUNT steps and prints the loss of each.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
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

/// The sum of the magnitudes of all weights, as golow stored it for its own.
double size_of(const safetensors::Tensors& weights) {
  double sum = 0;
  for (const auto& [name, tensor] : weights)
    if (tensor.is_floating_point()) sum += tensor.to(at::kDouble).abs().sum().item().toDouble();
  return sum;
}

/// Throws if a tensor of the file has another shape than the network's.
void require_shapes(const safetensors::Tensors& weights, const std::string& folder) {
  std::ifstream file(folder + "/workload.json", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const json::Value workload = json::parse(text.str());
  const json::Value* const shapes = workload.find("weight_shapes");
  if (shapes == nullptr) return;
  for (const auto& [name, shape] : shapes->object()) {
    const auto found = weights.find(name);
    if (found == weights.end()) continue;  // loading says so, if the network reads it
    std::vector<std::int64_t> wanted;
    for (const json::Value& side : shape.array()) wanted.push_back(side.integer());
    if (found->second.sizes() == at::IntArrayRef(wanted)) continue;
    std::ostringstream words;
    words << folder << "/weights.safetensors: " << name << " is " << found->second.sizes()
          << "; the network has " << at::IntArrayRef(wanted);
    throw std::runtime_error(words.str());
  }
}

/// Inputs of the user's own: `input/0`, `input/1`, ...
Batch own_batch(const safetensors::Tensors& tensors, const std::string& path, const Example& example,
                const Placement& placement) {
  Batch batch;
  for (std::size_t i = 0; i < example.batches.front().inputs.size(); ++i) {
    const std::string name = "input/" + std::to_string(i);
    const auto found = tensors.find(name);
    if (found == tensors.end()) throw std::runtime_error(path + " has no tensor " + name);
    const Tensor& like = example.batches.front().inputs[i];
    if (found->second.scalar_type() != like.scalar_type() || found->second.dim() != like.dim())
      throw std::runtime_error(path + ": " + name + " is not " + c10::toString(like.scalar_type()) +
                               " of " + std::to_string(like.dim()) + " dimensions");
    batch.inputs.push_back(placement.moved(found->second));
  }
  return batch;
}

void infer_file(Program& program, const Placement& placement, const Example& example,
                const std::string& inputs, const std::string& outputs) {
  const Batch batch = own_batch(safetensors::read(inputs), inputs, example, placement);
  Result result;
  placement.step(program, batch, result);
  safetensors::Tensors made;
  for (std::size_t i = 0; i < result.outputs.size(); ++i)
    made.emplace("output/" + std::to_string(i), placement.stored(result.outputs[i]));
  safetensors::write(outputs, made);
}

void infer(Program& program, const Placement& placement, const Example& example,
           std::size_t iterations, bool same_weights) {
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
  if (same_weights)
    std::printf("largest difference to the %zu stored outputs: %g\n", compared, largest);
  else
    std::printf("the weights are others than those of the stored outputs: nothing to compare with\n");

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
  std::printf("%.3f ms per iteration (median of %zu, threads: %d)\n",
              static_cast<double>(samples[samples.size() / 2]) * 1e-6, samples.size(),
              at::get_num_threads());
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

/// What the command line says.
struct Options {
  std::string folder = ".", inputs, outputs;
  std::size_t count = 20;
};

Options parse(int count, char** arguments) {
  Options options;
  std::size_t plain = 0;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--inputs" || argument == "--outputs") {
      if (i + 1 == count) throw std::invalid_argument(argument + " needs a file");
      (argument == "--inputs" ? options.inputs : options.outputs) = arguments[++i];
    } else if (plain++ == 0) {
      options.folder = argument;
    } else {
      const std::int64_t iterations = std::atoll(argument.c_str());
      if (iterations < 1) throw std::invalid_argument("COUNT must be 1 or more");
      options.count = static_cast<std::size_t>(iterations);
    }
  }
  if (options.inputs.empty() != options.outputs.empty())
    throw std::invalid_argument("--inputs and --outputs go together");
  return options;
}

int run(const Options& options) {
  const std::string& folder = options.folder;
  keep_memory();
  const c10::InferenceMode no_autograd;
  const auto program = make_program();
  const Workload workload = read_workload(folder + "/workload.json");
  require_match(*program, workload);
  if (workload.threads > 0) at::set_num_threads(static_cast<int>(workload.threads));
  workload.placement.take_effect();
  Example example;
  example.tensors = safetensors::read(folder + "/example.safetensors");
  example.batches = collect_batches(example.tensors, workload.batches, workload.placement);
  const auto stored = example.tensors.find("expected/weights");
  bool same_weights = true;
  {
    const safetensors::Tensors weights = safetensors::read(folder + "/weights.safetensors");
    require_shapes(weights, folder);
    if (stored != example.tensors.end()) {
      const double wanted = stored->second.item().toDouble();
      same_weights = std::abs(size_of(weights) - wanted) <= 1e-12 * wanted;
    }
  }
  load_state(*program, workload.placement, folder + "/weights.safetensors",
             folder + "/constants.safetensors");
  if (program->trains) {
    if (!options.inputs.empty()) throw std::invalid_argument("--inputs is for inference");
    train(*program, example, workload.optimizer, options.count);
  } else if (!options.inputs.empty()) {
    infer_file(*program, workload.placement, example, options.inputs, options.outputs);
  } else {
    infer(*program, workload.placement, example, options.count, same_weights);
  }
  return 0;
}

/// The first line of a text: PyTorch's errors have the stack behind it.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace
}  // namespace golow

int main(int count, char** arguments) {
  try {
    return golow::run(golow::parse(count, arguments));
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", golow::first_line(error.what_without_backtrace()).c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", golow::first_line(error.what()).c_str());
    return 1;
  }
}
