// The worker: answers golow's protocol (docs/extend/protocol.md), one JSON object per line, for the
// network of program.cpp. There is no Python in this process.

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "challenge.h"
#include "choices.h"
#include "clock.h"
#include "feed.h"
#include "json.h"
#include "memory.h"
#include "pixels.h"
#include "profiling.h"
#include "safetensors.h"
#include "session.h"
#include "timing.h"

namespace golow {
namespace {

constexpr int kProtocol = 3;  // golow/worker/protocol.py has the history

struct UnknownRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Worker {
 public:
  /// The answer to one line; every error becomes an answer, too.
  json::Object answer(const std::string& line) {
    try {
      const json::Value request = json::parse(line);
      const std::string& wanted = request.at("do").string();
      if (wanted == "quit") return quit();
      if (wanted == "wake") return {{"ok", true}};  // all libraries were loaded at the start
      if (wanted == "load") return load(request);
      if (wanted == "outputs") return outputs(request);
      if (wanted == "time") return time(request);
      if (wanted == "result") return result(request);
      if (wanted == "memory") return memory();
      if (wanted == "layers") return layers(request);
      if (wanted == "profile") return profile(request);
      if (wanted == "count") return count(request);
      if (wanted == "choices")
        return {{"ok", true}, {"choices", choices_.in_force(texts(request.at("names")))}};
      if (wanted == "epoch") return epoch(request);
      if (wanted == "save") return save(request);
      if (wanted == "restore") return restore(request);
      if (wanted == "predict") return predict(request);
      throw UnknownRequest("this worker does not know the request " + wanted);
    } catch (const UnknownRequest& error) {
      return refusal("unknown_request", error.what());
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      return refusal(is_out_of_memory(message) ? "out_of_memory" : "failed", message);
    } catch (const std::bad_alloc&) {
      return refusal("out_of_memory", "C++ could not allocate memory");
    } catch (const std::exception& error) {
      return refusal(is_out_of_memory(error.what()) ? "out_of_memory" : "failed", error.what());
    }
  }

  bool done() const { return done_; }

 private:
  /// Many failed allocations are ordinary errors with these words: ATen's on the CPU and on a GPU,
  /// CUDA's outside ATen's allocator, and those of cuBLAS and cuDNN for their workspaces.
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

  json::Object load(const json::Value& request) {
    const json::Value* const wanted = request.find("choices");
    const auto chosen = wanted == nullptr ? std::vector<std::string>() : texts(*wanted);
    choices_.choose(chosen);
    const std::int64_t start = nanoseconds();
    session_.reset();
    session_.emplace(request.at("bundle").string());
    choices_.choose_loaded(chosen);
    const double seconds = static_cast<double>(nanoseconds() - start) * 1e-9;
    struct stat program {};
    const bool found = stat("/proc/self/exe", &program) == 0;
    json::Object phases{{"load", seconds}};
    if (session_->recording()) phases.emplace_back("capture", session_->recording()->seconds);
    return {{"ok", true},
            {"phases", std::move(phases)},
            {"artifact_bytes", found ? json::Value(std::int64_t{program.st_size}) : json::Value()},
            {"cached", false},
            {"protocol", kProtocol},
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
    give_back_memory();
    return {{"ok", true}};
  }

  json::Object time(const json::Value& request) {
    Session& loaded = session();
    const std::size_t iterations = at_least(1, request.at("iterations"), "iterations");
    const std::size_t warmup = at_least(0, request.at("warmup"), "warmup");
    const json::Value* const cold = request.find("cold");
    const json::Value* const challenge = request.find("challenge");
    const bool challenged = challenge != nullptr && !challenge->is_null();
    std::optional<MarkedBatches> marked;
    const Marks marks = challenged ? prepare(loaded, *challenge, marked) : Marks();
    const std::size_t first =
        challenged ? at_least(0, challenge->at("first"), "an iteration") : 0;
    std::vector<double> results;
    const auto take = [&] { for (const double kept : loaded.kept()) results.push_back(kept); };
    const Around around = {
        [&](std::size_t i) {
          const auto before = results.empty() ? marks.previous : std::optional(results.back());
          if (marked) loaded.mark(*marked, marks.window(first + i, before));
        },
        [&](std::size_t) {
          if (challenged) loaded.keep();
          if (marks.chain) take();  // else they stay on the device until the block is over
        }};
    const Times times = time_iterations(loaded.device(), [&] { loaded.iterate(); }, iterations,
                                        warmup, cold != nullptr && cold->boolean(), around);
    const std::optional<double> last = loaded.last();
    take();
    return {{"ok", true},
            {"results", json::Array(results.begin(), results.end())},
            {"host_ns", json::Array(times.host.begin(), times.host.end())},
            {"device_ns", loaded.device().is_cpu()
                              ? json::Value()
                              : json::Array(times.device.begin(), times.device.end())},
            {"last", last ? json::Value(*last) : json::Value()}};
  }

  /// Go where the challenge's iterations begin; its marks, and the batches to write them to.
  static Marks prepare(Session& loaded, const json::Value& challenge,
                       std::optional<MarkedBatches>& marked) {
    const json::Value* const reset = challenge.find("reset");
    if (reset == nullptr || reset->boolean())
      loaded.reset(challenge.at("learning_rate").number());
    loaded.seek(at_least(0, challenge.at("first"), "an iteration"));
    const json::Value* const marks = challenge.find("marks");
    if (marks == nullptr || marks->is_null()) return {};
    const Marks found = read_marks(*marks);
    marked.emplace(loaded.batches(), found);
    return found;
  }

  json::Object result(const json::Value& request) {
    safetensors::write(request.at("file").string(), session().result());
    give_back_memory();
    return {{"ok", true}};
  }

  json::Object memory() {
    Session& loaded = session();
    loaded.iterate();  // the first iteration also allocates the momentum, which stays
    // A replay allocates nothing: what it needs was allocated when it was recorded.
    const std::int64_t peak = loaded.recording()
                                  ? loaded.recording()->bytes
                                  : allocated_peak(loaded.device(), [&] { loaded.iterate(); });
    // On a GPU an iteration always takes memory: an allocator that counts none does not report it.
    if (peak == 0 && !loaded.device().is_cpu()) return {{"ok", true}, {"allocated_peak", nullptr}};
    return {{"ok", true}, {"allocated_peak", peak}};
  }

  json::Object layers(const json::Value& request) {
    Session& loaded = session();
    const std::size_t iterations = at_least(1, request.at("iterations"), "iterations");
    std::vector<Operation> operations = loaded.operations();
    if (operations.empty()) return refusal("unsupported", loaded.program().indivisible());
    const auto times = loaded.time_operations(iterations);
    if (times.size() > operations.size()) operations.push_back({"", "update", "optimizer"});
    json::Array layers;
    for (std::size_t i = 0; i < times.size(); ++i)
      layers.push_back(json::Object{{"modules", json::Array{operations[i].module}},
                                    {"phase", operations[i].phase},
                                    {"operation", operations[i].name},
                                    {"ns", json::Array(times[i].begin(), times[i].end())}});
    return {{"ok", true}, {"layers", std::move(layers)}};
  }

  json::Object profile(const json::Value& request) {
    write_trace(session(), at_least(1, request.at("iterations"), "iterations"),
                request.at("file").string());
    return {{"ok", true}};
  }

  /// One forward pass between two functions of the request's library, which switch a counter.
  json::Object count(const json::Value& request) {
    Session& loaded = session();
    void* const library = dlopen(request.at("library").string().c_str(), RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    using Switch = void (*)();
    const auto begin = reinterpret_cast<Switch>(dlsym(library, "golow_begin"));
    const auto end = reinterpret_cast<Switch>(dlsym(library, "golow_end"));
    if (begin == nullptr || end == nullptr)
      throw std::runtime_error("the library has no golow_begin and golow_end");
    for (int warmup = 0; warmup < 3; ++warmup) loaded.iterate();
    begin();
    loaded.iterate();
    end();
    return {{"ok", true}, {"frames", json::Array{}}};
  }

  json::Object epoch(const json::Value& request) {
    Session& loaded = session();
    const Data data(request.at("data").string());
    const Order order(request.at("order").string(), data);
    const std::int64_t checksum = request.at("checksum").integer();
    if (checksum < 0 || checksum > UINT32_MAX)
      throw std::out_of_range(std::to_string(checksum) + " is not a CRC-32");
    const Trained trained =
        loaded.train(data, order, normalisation(request, loaded),
                     at_least(0, request.at("first"), "a batch index"),
                     numbers<double>(request.at("rates")), static_cast<std::uint32_t>(checksum));
    return {{"ok", true},
            {"losses", json::Array(trained.losses.begin(), trained.losses.end())},
            {"checksum", std::int64_t{trained.checksum}},
            {"nanoseconds", trained.nanoseconds}};
  }

  json::Object save(const json::Value& request) {
    session().save(request.at("file").string());
    give_back_memory();
    return {{"ok", true}};
  }

  json::Object restore(const json::Value& request) {
    if (!session().program().workload().empty())
      return refusal("unsupported", "the package contains its weights and takes no others");
    session().restore(request.at("file").string());
    give_back_memory();
    return {{"ok", true}};
  }

  json::Object predict(const json::Value& request) {
    Session& loaded = session();
    const Data data(request.at("data").string());
    const Predicted predicted = loaded.predict(data, normalisation(request, loaded),
                                               at_least(0, request.at("first"), "a batch index"),
                                               at_least(1, request.at("batches"), "batches"));
    safetensors::write(request.at("file").string(), {{"output", predicted.output}});
    give_back_memory();
    return {{"ok", true}, {"nanoseconds", predicted.nanoseconds}};
  }

  static Normalisation normalisation(const json::Value& request, const Session& loaded) {
    return {numbers<float>(request.at("scale")), numbers<float>(request.at("shift")),
            loaded.placement()};
  }

  static std::vector<std::string> texts(const json::Value& value) {
    std::vector<std::string> result;
    for (const json::Value& text : value.array()) result.push_back(text.string());
    return result;
  }

  template <typename Number>
  static std::vector<Number> numbers(const json::Value& value) {
    std::vector<Number> result;
    for (const json::Value& number : value.array())
      result.push_back(static_cast<Number>(number.number()));
    return result;
  }

  /// Return free memory to the system: copies of every tensor are not the level's memory.
  static void give_back_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
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

  Choices choices_;
  std::optional<Session> session_;
  bool done_ = false;
};

/// A stream for the answers on the process's original standard output; everything else written to
/// standard output goes to the log.
std::FILE* take_standard_output() {
  const int answers = dup(STDOUT_FILENO);
  if (answers < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return nullptr;
  return fdopen(answers, "w");
}

int serve() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Ctrl-C reaches the whole process group of a terminal; the parent decides when workers end.
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
