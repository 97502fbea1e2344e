// The worker: answers golow's protocol (docs/protocol.md), one JSON object a line, for the network
// of program.cpp. There is no Python in this process.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "bundle.h"
#include "clock.h"
#include "json.h"
#include "memory.h"
#include "program.h"
#include "safetensors.h"
#include "sgd.h"
#include "timing.h"

namespace golow {
namespace {

/// Random layers are off as long as this lives, also when a step throws.
struct RandomLayersOff {
  explicit RandomLayersOff(Program& program) : program(program) { program.random_layers = false; }
  RandomLayersOff(const RandomLayersOff&) = delete;
  RandomLayersOff& operator=(const RandomLayersOff&) = delete;
  ~RandomLayersOff() { program.random_layers = true; }
  Program& program;
};

/// The program writes its marks there as long as this lives, also when a step throws.
struct MarksOn {
  MarksOn(Program& program, Timeline& marks) : program(program) { program.marks = &marks; }
  MarksOn(const MarksOn&) = delete;
  MarksOn& operator=(const MarksOn&) = delete;
  ~MarksOn() { program.marks = nullptr; }
  Program& program;
};

/// One workload, loaded, with the state that its iterations change.
class Session {
 public:
  explicit Session(const std::string& bundle)
      : bundle_(bundle), program_(make_program()), workload_(read_workload(path("workload.json"))) {
    if (workload_.train != program_->trains)
      throw std::runtime_error("the program was built for another mode than the bundle's");
    workload_.placement.take_effect();
    batches_ = collect_batches(safetensors::read(path("batches.safetensors")), workload_.batches,
                               workload_.placement);
    reset();
    synchronize(device());
  }

  /// Back to the bundle's weights, zero momentum and the first batch.
  void reset() {
    load_state(*program_, workload_.placement, path("weights.safetensors"), path("constants.safetensors"));
    position_ = 0;
  }

  /// One forward pass, or one training step, on the next batch.
  void iterate() {
    step();
    if (program_->trains) update();
  }

  /// Nanoseconds of each operation in so many iterations: a row an operation in the program's
  /// order, in training one more for the optimizer's update.
  std::vector<std::vector<std::int64_t>> time_operations(std::size_t iterations) {
    const std::size_t count = program_->operations().size();
    std::vector<std::vector<std::int64_t>> times(count + (program_->trains ? 1 : 0));
    const std::size_t start = count, stepped = count + 1, updated = count + 2;
    Timeline marks(device(), count + 3);
    const MarksOn on(*program_, marks);
    for (std::size_t i = 0; i < iterations; ++i) {
      marks.record(start);
      step();
      marks.record(stepped);
      if (program_->trains) update();
      marks.record(updated);
      synchronize(device());
      for (std::size_t operation = 0; operation < count; ++operation)
        times[operation].push_back(
            marks.between(operation == 0 ? start : operation - 1, operation));
      if (program_->trains) times[count].push_back(marks.between(stepped, updated));
    }
    return times;
  }

  std::vector<Operation> operations() const { return program_->operations(); }

  /// Run the batches from the bundle's weights, random layers off and with this learning rate;
  /// returns what the check reads.
  safetensors::Tensors outputs(const std::vector<std::size_t>& indices, double learning_rate) {
    reset();
    Rates rates = workload_.rates;
    rates.learning_rate = learning_rate;
    safetensors::Tensors tensors;
    {
      const RandomLayersOff off(*program_);
      for (std::size_t step = 0; step < indices.size(); ++step)
        output_step(batches_[indices[step]], rates, step, step + 1 == indices.size(), tensors);
    }
    reset();
    return tensors;
  }

  /// The loss, or the first element of the first output; nothing where there is none.
  std::optional<double> last() const {
    const Tensor first = program_->trains           ? result_.loss
                         : result_.outputs.empty() ? Tensor()
                                                   : result_.outputs.front();
    if (!first.defined() || first.numel() == 0 || first.is_complex()) return std::nullopt;
    return first.flatten().select(0, 0).item().toDouble();
  }

  at::Device device() const { return workload_.placement.device; }

  std::size_t batch_count() const { return batches_.size(); }

 private:
  std::string path(const char* name) const { return bundle_ + "/" + name; }

  const Batch& next_batch() { return batches_[position_++ % batches_.size()]; }

  void step() {
    const Batch& batch = next_batch();
    result_ = Result();
    workload_.placement.step(*program_, batch, result_);
  }

  void update() {
    update_parameters(*program_, workload_.rates);
    clear_gradients(*program_);
  }

  void output_step(const Batch& batch, const Rates& rates, std::size_t step, bool is_last,
                   safetensors::Tensors& tensors) {
    // Copies, because the next step changes the state in place.
    const auto keep = [&](const std::string& name, const Tensor& tensor) {
      tensors[std::to_string(step) + "/" + name] = workload_.placement.stored(tensor);
    };
    Result result;
    workload_.placement.step(*program_, batch, result);
    for (std::size_t i = 0; i < result.outputs.size(); ++i)
      keep("output/" + std::to_string(i), result.outputs[i]);
    if (!program_->trains) return;
    keep("loss/loss", result.loss);
    for (const Buffer* buffer : program_->buffers)
      if (buffer->kind == updated) keep("buffer/" + buffer->name, *buffer);
    update_parameters(*program_, rates);
    for (const Parameter* parameter : program_->parameters) {
      if (!parameter->gradient.defined()) continue;
      if (step == 0) keep("gradient/" + parameter->name, parameter->gradient);
      if (is_last) keep("parameter/" + parameter->name, *parameter);
      if (is_last && parameter->momentum.defined())
        keep("momentum/" + parameter->name, parameter->momentum);
    }
    clear_gradients(*program_);
  }

  std::string bundle_;
  std::unique_ptr<Program> program_;
  Workload workload_;
  std::vector<Batch> batches_;
  std::size_t position_ = 0;
  Result result_;
};

// ---------------------------------------------------------------- requests

struct UnknownRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Worker {
 public:
  /// The answer to one line; whatever goes wrong becomes an answer too.
  json::Object answer(const std::string& line) {
    try {
      const json::Value request = json::parse(line);
      const std::string& wanted = request.at("do").string();
      if (wanted == "quit") return quit();
      if (wanted == "load") return load(request.at("bundle").string());
      if (wanted == "outputs") return outputs(request);
      if (wanted == "time") return time(request);
      if (wanted == "memory") return memory();
      if (wanted == "layers") return layers(request);
      throw UnknownRequest("this worker does not know the request " + wanted);
    } catch (const UnknownRequest& error) {
      return refusal("unknown_request", error.what());
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      return refusal(is_out_of_memory(message) ? "out_of_memory" : "failed", message);
    } catch (const std::bad_alloc&) {
      return refusal("out_of_memory", "C++ could not allocate memory");
    } catch (const std::exception& error) {
      return refusal("failed", error.what());
    }
  }

  bool done() const { return done_; }

 private:
  /// Many a failed allocation is an ordinary error with such words: ATen's own on the CPU and on a
  /// GPU, CUDA's outside of ATen's allocator, and those of cuBLAS and cuDNN for their workspaces.
  static bool is_out_of_memory(const std::string& message) {
    for (const char* words : {"can't allocate memory", "out of memory", "ALLOC_FAILED"})
      if (message.find(words) != std::string::npos) return true;
    return false;
  }

  static json::Object refusal(const char* kind, const std::string& message) {
    std::cerr << kind << ": " << message << std::endl;
    return {{"ok", false}, {"error", kind}, {"message", message}, {"node", ""}, {"module", ""}};
  }

  json::Object quit() {
    done_ = true;
    return {{"ok", true}};
  }

  json::Object load(const std::string& bundle) {
    const std::int64_t start = nanoseconds();
    session_.reset();
    session_.emplace(bundle);
    const double seconds = static_cast<double>(nanoseconds() - start) * 1e-9;
    struct stat program {};
    const bool found = stat("/proc/self/exe", &program) == 0;
    return {{"ok", true},
            {"phases", json::Object{{"load", seconds}}},
            {"artifact_bytes", found ? json::Value(std::int64_t{program.st_size}) : json::Value()},
            {"cached", false},
            {"notes", json::Array{}}};
  }

  json::Object outputs(const json::Value& request) {
    Session& loaded = session();
    std::vector<std::size_t> indices;
    for (const json::Value& index : request.at("batches").array())
      indices.push_back(at_least(0, index, "a batch index"));
    for (const std::size_t index : indices)
      if (index >= loaded.batch_count())
        throw std::out_of_range("there is no batch " + std::to_string(index));
    const double learning_rate = request.at("learning_rate").number();
    const std::string& file = request.at("file").string();
    safetensors::write(file, loaded.outputs(indices, learning_rate));
#ifdef __GLIBC__
    malloc_trim(0);  // the copies of every tensor are not the level's memory
#endif
    return {{"ok", true}};
  }

  json::Object time(const json::Value& request) {
    Session& loaded = session();
    const std::size_t iterations = at_least(1, request.at("iterations"), "iterations");
    const std::size_t warmup = at_least(0, request.at("warmup"), "warmup");
    const json::Value* const cold = request.find("cold");
    const Times times = time_iterations(loaded.device(), [&] { loaded.iterate(); }, iterations,
                                        warmup, cold != nullptr && cold->boolean());
    const std::optional<double> last = loaded.last();
    return {{"ok", true},
            {"host_ns", json::Array(times.host.begin(), times.host.end())},
            {"device_ns", loaded.device().is_cpu()
                              ? json::Value()
                              : json::Array(times.device.begin(), times.device.end())},
            {"last", last ? json::Value(*last) : json::Value()}};
  }

  json::Object memory() {
    Session& loaded = session();
    loaded.iterate();  // the first iteration also allocates what stays, the momentum
    return {{"ok", true}, {"allocated_peak", allocated_peak(loaded.device(), [&] { loaded.iterate(); })}};
  }

  json::Object layers(const json::Value& request) {
    Session& loaded = session();
    const std::size_t iterations = at_least(1, request.at("iterations"), "iterations");
    std::vector<Operation> operations = loaded.operations();
    if (operations.empty()) return refusal("unsupported", "the program has no marks");
    const auto times = loaded.time_operations(iterations);
    if (times.size() > operations.size()) operations.push_back({"", "update", "sgd"});
    json::Array layers;
    for (std::size_t i = 0; i < times.size(); ++i)
      layers.push_back(json::Object{{"modules", json::Array{operations[i].module}},
                                    {"phase", operations[i].phase},
                                    {"operation", operations[i].name},
                                    {"ns", json::Array(times[i].begin(), times[i].end())}});
    return {{"ok", true}, {"layers", std::move(layers)}};
  }

  static std::size_t at_least(std::int64_t least, const json::Value& value, const char* what) {
    const std::int64_t number = value.integer();
    if (number < least)
      throw std::out_of_range(std::to_string(number) + " is too small for " + what);
    return static_cast<std::size_t>(number);
  }

  Session& session() {
    if (!session_) throw std::runtime_error("nothing is loaded yet");
    return *session_;
  }

  std::optional<Session> session_;
  bool done_ = false;
};

/// A stream for the answers that is the process's standard output from before; what else writes
/// to standard output ends in the log.
std::FILE* take_standard_output() {
  const int answers = dup(STDOUT_FILENO);
  if (answers < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return nullptr;
  return fdopen(answers, "w");
}

int serve() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Ctrl-C reaches the whole group of a terminal; the parent decides what becomes of workers.
  std::signal(SIGINT, SIG_IGN);
  std::FILE* const answers = take_standard_output();
  if (answers == nullptr) return 1;
  at::init_num_threads();  // as `import torch` does: OMP_NUM_THREADS decides
  // Also in training: the backward pass is written out, so autograd has nothing to record.
  const c10::InferenceMode no_autograd;
  Worker worker;
  std::string line;
  while (!worker.done() && std::getline(std::cin, line)) {
    const std::string answer = json::dump(worker.answer(line)) + "\n";
    if (std::fwrite(answer.data(), 1, answer.size(), answers) != answer.size()) return 1;
    if (std::fflush(answers) != 0) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace golow

int main() { return golow::serve(); }
