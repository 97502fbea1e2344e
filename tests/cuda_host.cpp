// Runs the threads of a block one after the other, each until it waits for the others of its block
// or its warp. Compiled once for all kernels.

#include "cuda_host.h"

#include <sched.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <vector>

Dim threadIdx, blockIdx, blockDim, gridDim;
alignas(256) char shared_memory[256 << 10];
unsigned running;
void (*kernel)(void**);

static void** given_arguments;
struct Thread { ucontext_t context; char* stack; Wait wait; Dim index; };
static std::vector<Thread> threads;
static ucontext_t scheduler;
constexpr size_t STACK = 64 << 10;
constexpr unsigned SECONDS = 60;  // of a block that waits for others

void wait_for(Wait wait) {
  threads[running].wait = wait;
  swapcontext(&threads[running].context, &scheduler);
}

// Lets those go on for whom all others of their group wait; true if there are any.
static bool release(size_t size, Wait kind) {
  bool any = false;
  for (size_t first = 0; first < threads.size(); first += size) {
    const auto begin = threads.begin() + first;
    const auto end = begin + std::min(size, threads.size() - first);
    if (!std::all_of(begin, end, [=](auto& t) { return t.wait == kind || t.wait == ENDED; })) continue;
    std::for_each(begin, end, [&](auto& t) { if (t.wait == kind) t.wait = NOTHING, any = true; });
  }
  return any;
}

// Lets those go on that wait for another block, which is another process; true if there are any.
static bool look_again() {
  bool any = false;
  for (Thread& t : threads)
    if (t.wait == OTHERS) t.wait = NOTHING, any = true;
  if (any) sched_yield();
  return any;
}

static void thread_body() {
  kernel(given_arguments);
  wait_for(ENDED);
}

// Every second round runs backwards: a result that depends on the order of threads is seen.
static void run_together() {
  threads.resize(blockDim.x * blockDim.y * blockDim.z);
  for (unsigned t = 0; t < threads.size(); ++t) {
    Thread& thread = threads[t];
    if (!thread.stack) thread.stack = static_cast<char*>(malloc(STACK));
    thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    thread.wait = NOTHING;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack;
    thread.context.uc_stack.ss_size = STACK;
    makecontext(&thread.context, thread_body, 0);
  }
  bool backwards = false;
  do {
    for (unsigned k = 0; k < threads.size(); ++k) {
      running = backwards ? threads.size() - 1 - k : k;
      if (threads[running].wait != NOTHING) continue;
      threadIdx = threads[running].index;
      swapcontext(&scheduler, &threads[running].context);
    }
    backwards = !backwards;
  } while (release(32, WARP) | look_again() || release(threads.size(), BLOCK));
  for (const Thread& thread : threads)
    if (thread.wait != ENDED) fprintf(stderr, "threads of a block wait for ever\n"), abort();
}

// Threads that share nothing need no stacks of their own.
static void run_alone() {
  for (threadIdx.z = 0; threadIdx.z < blockDim.z; ++threadIdx.z)
    for (threadIdx.y = 0; threadIdx.y < blockDim.y; ++threadIdx.y)
      for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel(given_arguments);
}

static void choose(size_t b) {
  blockIdx = {(unsigned)(b % gridDim.x), (unsigned)(b / gridDim.x % gridDim.y),
              (unsigned)(b / gridDim.x / gridDim.y)};
}

// Runs all blocks at once, each as a process; what they write must be shared memory. Returns how
// many of them failed.
static int run_side_by_side(size_t count) {
  std::vector<pid_t> blocks;
  for (size_t b = 0; b < count; ++b) {
    const pid_t one = fork();
    if (one == 0) {
      alarm(SECONDS);  // ends it if it waits for ever
      choose(b);
      run_together();
      _exit(0);
    }
    blocks.push_back(one);
  }
  int failed = 0;
  for (const pid_t one : blocks) {
    int status = 1;
    const pid_t found = one < 0 ? one : waitpid(one, &status, 0);
    if (found == one && status == 0) continue;
    fprintf(stderr, "block %d: waited for %d, status %d: %s\n", one, found, status, strerror(errno));
    ++failed;
  }
  return failed;
}

// Every second launch begins with the last block: a result that depends on their order is seen.
int run_grid(const unsigned* grid, const unsigned* block, void** arguments, How how) {
  static bool backwards = true;
  backwards = !backwards;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  given_arguments = arguments;
  const size_t count = (size_t)grid[0] * grid[1] * grid[2];
  if (how == SIDE_BY_SIDE) return run_side_by_side(count);
  for (size_t k = 0; k < count; ++k) {
    choose(backwards ? count - 1 - k : k);
    how == TOGETHER ? run_together() : run_alone();
  }
  return 0;
}
