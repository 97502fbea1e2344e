// Runs the threads of a block one after the other, each until it waits for the others of its block
// or its warp. Compiled once for kernels whose blocks run one after the other, and with SIDE_BY_SIDE
// for those whose blocks wait for one another.

#include "cuda_host.h"

#include <sched.h>
#include <ucontext.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

BLOCK_LOCAL Dim threadIdx, blockIdx;
Dim blockDim, gridDim;
alignas(256) BLOCK_LOCAL char shared_memory[256 << 10];
BLOCK_LOCAL unsigned running;
void (*kernel)(void**);

static void** given_arguments;
struct Thread { ucontext_t context; char* stack; Wait wait; Dim index; };
static thread_local std::vector<Thread> threads;
static thread_local ucontext_t scheduler;
constexpr size_t STACK = 64 << 10;

// When blocks stop waiting for one another.
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds PATIENCE(60);
static Clock::time_point end_of_patience;

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

// Lets those go on that wait for another block; true if there are any.
static bool look_again() {
  bool any = false;
  for (Thread& t : threads)
    if (t.wait == OTHERS) t.wait = NOTHING, any = true;
  if (any) sched_yield();
  return any && Clock::now() < end_of_patience;
}

static void thread_body() {
  kernel(given_arguments);
  wait_for(ENDED);
}

// Every second round runs backwards: a result that depends on the order of threads is seen. Returns
// whether all threads have ended.
static bool run_together() {
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
  return std::all_of(threads.begin(), threads.end(), [](auto& t) { return t.wait == ENDED; });
}

// Every kernel is a library of its own: what each kept would come to gigabytes.
static void forget_stacks() {
  for (Thread& thread : threads) free(thread.stack);
  threads.clear();
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

#ifdef SIDE_BY_SIDE
int run_grid(const unsigned* grid, const unsigned* block, void** arguments, bool) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  given_arguments = arguments;
  end_of_patience = Clock::now() + PATIENCE;
  const size_t count = (size_t)grid[0] * grid[1] * grid[2];
  std::vector<char> ended(count);
  std::vector<std::thread> blocks;
  for (size_t b = 0; b < count; ++b)
    blocks.emplace_back([&ended, b] {
      choose(b);
      ended[b] = run_together();
      forget_stacks();
    });
  for (std::thread& one : blocks) one.join();
  return count - std::count(ended.begin(), ended.end(), 1);
}
#else
// Every second launch begins with the last block: a result that depends on their order is seen.
int run_grid(const unsigned* grid, const unsigned* block, void** arguments, bool together) {
  static bool backwards = true;
  backwards = !backwards;
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  given_arguments = arguments;
  const size_t count = (size_t)grid[0] * grid[1] * grid[2];
  for (size_t k = 0; k < count; ++k) {
    choose(backwards ? count - 1 - k : k);
    if (!together) run_alone();
    else if (!run_together()) fprintf(stderr, "threads of a block wait forever\n"), abort();
  }
  forget_stacks();
  return 0;
}
#endif
