// A CUDA graph that reads and writes at other addresses in each launch: those of the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <cuda.h>

namespace golow {

/// A piece of the device's memory.
struct Span {
  CUdeviceptr start;
  std::size_t bytes;
};

/// Whether what is enqueued on a stream becomes a part of a graph.
bool is_capturing(CUstream stream);

class PointedGraph {
 public:
  /// Captures what the function enqueues on the stream. places: memory that stands for the caller's
  /// meanwhile; nothing is read or written there afterwards. own: names of kernels that wait for
  /// what they read by themselves. Throws Failure if no kernel gets the address of a place.
  PointedGraph(CUstream stream, const std::function<void()>& enqueue, const std::vector<Span>& places,
               const std::set<std::string>& own);
  PointedGraph(const PointedGraph&) = delete;
  PointedGraph& operator=(const PointedGraph&) = delete;
  ~PointedGraph();

  /// Enqueues it with the memory of the places at these addresses. In a stream that is being captured
  /// it becomes a part of that graph.
  void launch(const std::vector<CUdeviceptr>& addresses, CUstream stream);

 private:
  struct Slot {
    std::size_t place, parameter, at, offset;
  };
  struct Node {
    CUgraphNode handle;
    CUDA_KERNEL_NODE_PARAMS launch;
    std::vector<std::vector<char>> values;
    std::vector<void*> parameters;
    std::vector<Slot> slots;
  };
  void find_addresses(const std::vector<Span>& places);
  void add_to(CUstream stream);
  static void point(Node& node, const std::vector<CUdeviceptr>& addresses);

  CUgraph graph_ = nullptr;
  CUgraphExec launched_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<CUdeviceptr> addresses_;
};

}  // namespace golow
