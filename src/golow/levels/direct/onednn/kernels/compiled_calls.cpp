// Runs the calls of a plan one after the other. Called from Python, each would cost about a
// microsecond more, which is as long as the smallest of them take.

// count: how many arguments a primitive of oneDNN has; -1 for a generated kernel, whose three
// arguments are its pointers, its numbers and the pool of threads.
struct Call {
  void* function;
  void* first;
  void* second;
  void* third;
  long count;
};

using Primitive = int (*)(void* primitive, void* stream, int count, void* arguments);
using Kernel = void (*)(void* pointers, void* numbers, void* pool);

// Returns 0, or the status of the first primitive that fails, behind which nothing runs.
extern "C" int play(const Call* calls, long number) {
  for (const Call* call = calls; call != calls + number; ++call) {
    if (call->count < 0) {
      reinterpret_cast<Kernel>(call->function)(call->first, call->second, call->third);
      continue;
    }
    const auto run = reinterpret_cast<Primitive>(call->function);
    const int status = run(call->first, call->second, static_cast<int>(call->count), call->third);
    if (status) return status;
  }
  return 0;
}
