#include "graph.h"

#include <cstring>

#include "device.h"

namespace golow {
namespace {

std::string name_of(CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS launch = {};
  check(cuGraphKernelNodeGetParams(node, &launch), "cuGraphKernelNodeGetParams");
  const char* name = nullptr;
  check(launch.func != nullptr ? cuFuncGetName(&name, launch.func) : cuKernelGetName(&name, launch.kern),
        "the name of a kernel");
  return name;
}

/// Makes every node wait until the nodes before it have ended, except for golow's own kernels. The
/// libraries launch kernels that may begin early and do not wait for what they read
/// (https://github.com/NVIDIA/TransformerEngine/issues/2489).
void wait_for_ends(CUgraph graph, const std::set<std::string>& own) {
  std::size_t count = 0;
  check(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count), "cuGraphGetEdges");
  std::vector<CUgraphNode> before(count), after(count);
  std::vector<CUgraphEdgeData> edges(count);
  if (count == 0) return;
  check(cuGraphGetEdges_v2(graph, before.data(), after.data(), edges.data(), &count), "cuGraphGetEdges");
  for (std::size_t i = 0; i < count; ++i) {
    if (edges[i].type == 0 || own.count(name_of(after[i])) != 0) continue;
    check(cuGraphRemoveDependencies_v2(graph, &before[i], &after[i], &edges[i], 1), "cuGraphRemoveDependencies");
    check(cuGraphAddDependencies_v2(graph, &before[i], &after[i], nullptr, 1), "cuGraphAddDependencies");
  }
}

/// The bytes of each parameter of a kernel.
std::vector<std::size_t> parameter_sizes(const CUDA_KERNEL_NODE_PARAMS& launch) {
  std::vector<std::size_t> sizes;
  for (;;) {
    std::size_t offset = 0, size = 0;
    const CUresult status = launch.func != nullptr
                                ? cuFuncGetParamInfo(launch.func, sizes.size(), &offset, &size)
                                : cuKernelGetParamInfo(launch.kern, sizes.size(), &offset, &size);
    if (status == CUDA_ERROR_INVALID_VALUE) return sizes;  // there are no more
    check(status, "the parameters of a kernel");
    sizes.push_back(size);
  }
}

}  // namespace

bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status;
  check(cuStreamIsCapturing(stream, &status), "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

PointedGraph::PointedGraph(CUstream stream, const std::function<void()>& enqueue,
                           const std::vector<Span>& places, const std::set<std::string>& own) {
  check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  try {
    enqueue();
  } catch (...) {  // it says more than the status of the capture that it ended
    if (cuStreamEndCapture(stream, &graph_) == CUDA_SUCCESS && graph_ != nullptr) cuGraphDestroy(graph_);
    throw;
  }
  check(cuStreamEndCapture(stream, &graph_), "cuStreamEndCapture");
  try {
    wait_for_ends(graph_, own);
    find_addresses(places);
    check(cuGraphInstantiateWithFlags(&launched_, graph_, 0), "cuGraphInstantiate");
    check(cuGraphUpload(launched_, stream), "cuGraphUpload");
  } catch (...) {
    if (launched_ != nullptr) cuGraphExecDestroy(launched_);
    cuGraphDestroy(graph_);
    throw;
  }
}

PointedGraph::~PointedGraph() {
  cuGraphExecDestroy(launched_);
  cuGraphDestroy(graph_);
}

void PointedGraph::find_addresses(const std::vector<Span>& places) {
  std::size_t count = 0;
  check(cuGraphGetNodes(graph_, nullptr, &count), "cuGraphGetNodes");
  std::vector<CUgraphNode> handles(count);
  check(cuGraphGetNodes(graph_, handles.data(), &count), "cuGraphGetNodes");
  std::set<std::size_t> pointed;
  for (const CUgraphNode handle : handles) {
    CUgraphNodeType type;
    check(cuGraphNodeGetType(handle, &type), "cuGraphNodeGetType");
    if (type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    Node node = {};
    node.handle = handle;
    check(cuGraphKernelNodeGetParams(handle, &node.launch), "cuGraphKernelNodeGetParams");
    if (node.launch.kernelParams == nullptr) continue;
    for (const std::size_t size : parameter_sizes(node.launch)) {
      const std::size_t parameter = node.values.size();
      const char* const from = static_cast<const char*>(node.launch.kernelParams[parameter]);
      node.values.emplace_back(from, from + size);
      for (std::size_t at = 0; at + sizeof(CUdeviceptr) <= size; at += sizeof(CUdeviceptr)) {
        CUdeviceptr address = 0;
        std::memcpy(&address, from + at, sizeof address);
        for (std::size_t place = 0; place < places.size(); ++place)
          if (address >= places[place].start && address - places[place].start < places[place].bytes)
            node.slots.push_back({place, parameter, at, address - places[place].start});
      }
    }
    for (const Slot& slot : node.slots) pointed.insert(slot.place);
    if (!node.slots.empty()) nodes_.push_back(std::move(node));
  }
  for (Node& node : nodes_) {  // they do not move any more
    for (std::vector<char>& value : node.values) node.parameters.push_back(value.data());
    node.launch.kernelParams = node.parameters.data();
  }
  if (pointed.size() != places.size())
    throw Failure(Status::internal, "no kernel gets the address of an input or an output");
}

void PointedGraph::launch(const std::vector<CUdeviceptr>& addresses, CUstream stream) {
  if (is_capturing(stream)) {
    addresses_.clear();
    for (Node& node : nodes_) {
      point(node, addresses);
      check(cuGraphKernelNodeSetParams(node.handle, &node.launch), "cuGraphKernelNodeSetParams");
    }
    add_to(stream);
    return;
  }
  if (addresses != addresses_) {
    addresses_.clear();  // until all are set
    for (Node& node : nodes_) {
      point(node, addresses);
      check(cuGraphExecKernelNodeSetParams(launched_, node.handle, &node.launch),
            "cuGraphExecKernelNodeSetParams");
    }
    addresses_ = addresses;
  }
  check(cuGraphLaunch(launched_, stream), "cuGraphLaunch");
}

/// Adds it to the graph that the stream is captured into, after what is there.
void PointedGraph::add_to(CUstream stream) {
  CUstreamCaptureStatus status;
  cuuint64_t number = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* before = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  check(cuStreamGetCaptureInfo_v3(stream, &status, &number, &graph, &before, &edges, &count),
        "cuStreamGetCaptureInfo");
  CUgraphNode node = nullptr;
  check(cuGraphAddChildGraphNode(&node, graph, before, count, graph_), "cuGraphAddChildGraphNode");
  check(cuStreamUpdateCaptureDependencies_v2(stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
        "cuStreamUpdateCaptureDependencies");
}

void PointedGraph::point(Node& node, const std::vector<CUdeviceptr>& addresses) {
  for (const Slot& slot : node.slots) {
    const CUdeviceptr address = addresses[slot.place] + slot.offset;
    std::memcpy(node.values[slot.parameter].data() + slot.at, &address, sizeof address);
  }
}

}  // namespace golow
