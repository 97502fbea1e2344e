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

// Where a call has an address of the caller's. user: a memory of oneDNN, or one of a kernel's
// pointers. place: number of the address; offset: bytes from there.
struct Use {
  void* user;
  long place;
  long offset;
  long is_pointer;
};

// An iteration on the caller's memory. set_threads: null to leave their number as it is.
struct Iteration {
  void (*set_threads)(int number);
  int (*set_address)(void* memory, void* address);
  const long* addresses;
  const Use* uses;
  const Call* calls;
  long threads;
  long use_count;
  long call_count;
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

// Lets the calls use the caller's memory, and runs them as `play` does.
extern "C" int play_at(const Iteration* iteration) {
  if (iteration->set_threads) iteration->set_threads(static_cast<int>(iteration->threads));
  const Use* const end = iteration->uses + iteration->use_count;
  for (const Use* use = iteration->uses; use != end; ++use) {
    void* const address = reinterpret_cast<void*>(iteration->addresses[use->place] + use->offset);
    if (use->is_pointer) {
      *static_cast<void**>(use->user) = address;
    } else if (const int status = iteration->set_address(use->user, address)) {
      return status;
    }
  }
  return play(iteration->calls, iteration->call_count);
}
