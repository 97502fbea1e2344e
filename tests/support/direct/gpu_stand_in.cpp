// Stands in for CUDA's driver in projects of `golow emit --level cudnn`: the GPU's memory is this
// processor's, and kernels are libraries that `cuda_host.py` compiled. What is enqueued runs at once,
// unless its stream is being captured.
//
// It refuses what a GPU would compute wrongly: a kernel of a library that may begin before the kernel
// before it has ended. Memory that was freed holds NaN and is never used again.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <cuda.h>

#include "gpu_stand_in.h"

struct CUfunc_st {
  std::string name;
  std::vector<size_t> sizes;
  std::function<void(void**, const unsigned*, const unsigned*)> run;
};
struct CUmod_st {
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};
struct CUgraphNode_st {
  CUfunction function = nullptr;  // nullptr: a graph within the graph
  unsigned grid[3] = {}, block[3] = {};
  std::vector<std::vector<char>> values;
  std::vector<void*> pointers;
  std::vector<CUgraphNode_st> inner;
  bool waits = false;  // for the end of the node before it

  CUgraphNode_st() = default;
  CUgraphNode_st(const CUgraphNode_st& other) { *this = other; }
  CUgraphNode_st& operator=(const CUgraphNode_st& other) {
    function = other.function, values = other.values, inner = other.inner, waits = other.waits;
    std::memcpy(grid, other.grid, sizeof grid);
    std::memcpy(block, other.block, sizeof block);
    pointers.clear();
    for (auto& value : values) pointers.push_back(value.data());
    return *this;
  }
  void run() {
    if (function != nullptr) function->run(pointers.data(), grid, block);
    for (auto& node : inner) node.run();
  }
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::map<CUgraphNode, CUgraphNode_st> nodes;
  std::vector<CUgraphNode> order;
};
struct CUstream_st {
  CUgraph captured = nullptr;
};

namespace {

constexpr int kDevice = 0;
int context_storage;
thread_local std::vector<CUcontext> contexts;
std::map<CUdeviceptr, size_t> allocated;

CUresult add_or_run(CUstream stream, std::unique_ptr<CUgraphNode_st> node) {
  if (stream != nullptr && stream->captured != nullptr)
    stream->captured->nodes.push_back(std::move(node));
  else
    node->run();
  return CUDA_SUCCESS;
}

CUresult with_context(CUresult status = CUDA_SUCCESS) {
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : status;
}

void set(CUgraphNode_st& node, const CUDA_KERNEL_NODE_PARAMS* given) {
  for (size_t i = 0; i < node.values.size(); ++i)
    std::memcpy(node.values[i].data(), given->kernelParams[i], node.values[i].size());
}

}  // namespace

void enqueue(CUstream stream, std::function<void()> call) {
  static std::vector<std::unique_ptr<CUfunc_st>> kept;
  kept.push_back(std::make_unique<CUfunc_st>());
  kept.back()->name = "library_kernel";
  kept.back()->run = [call = std::move(call)](void**, const unsigned*, const unsigned*) { call(); };
  auto node = std::make_unique<CUgraphNode_st>();
  node->function = kept.back().get();
  add_or_run(stream, std::move(node));
}

extern "C" {

// ---------------------------------------------------------------- devices and memory

CUresult cuGetErrorName(CUresult, const char** name) { return *name = "CUDA_ERROR_STAND_IN", CUDA_SUCCESS; }
CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* found) { return *found = contexts.empty() ? nullptr : contexts.back(), CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = kDevice, with_context(); }
CUresult cuDeviceGet(CUdevice* device, int) { return *device = kDevice, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice) {
  return *made = reinterpret_cast<CUcontext>(&context_storage), CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char* name, int size, CUdevice) { return std::snprintf(name, size, "a stand-in"), CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute wanted, CUdevice) {
  const char* const other = std::getenv("STAND_IN_CAPABILITY");
  *value = wanted == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? (other != nullptr ? std::atoi(other) : 9)
           : wanted == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                    : 132;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) { return contexts.push_back(context), CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = contexts.back();
  return contexts.pop_back(), CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { return with_context(); }
CUresult cuMemAlloc_v2(CUdeviceptr* made, size_t bytes) {
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, 0xFF, bytes);
  *made = reinterpret_cast<CUdeviceptr>(memory);
  allocated[*made] = bytes;
  return with_context();
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  std::memset(reinterpret_cast<void*>(address), 0xFF, allocated.at(address));
  return with_context();
}
CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char byte, size_t count) {
  return std::memset(reinterpret_cast<void*>(at), byte, count), with_context();
}
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char byte, size_t count, CUstream) {
  return std::memset(reinterpret_cast<void*>(at), byte, count), with_context();
}
CUresult cuMemsetD32Async(CUdeviceptr at, unsigned word, size_t count, CUstream) {
  for (size_t i = 0; i < count; ++i) std::memcpy(reinterpret_cast<char*>(at) + 4 * i, &word, sizeof word);
  return with_context();
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), with_context();
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), with_context();
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  return std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), with_context();
}

// ---------------------------------------------------------------- streams and kernels

CUresult cuStreamCreate(CUstream* made, unsigned) { return *made = new CUstream_st, with_context(); }
CUresult cuStreamDestroy_v2(CUstream stream) { return delete stream, CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) {
  return stream != nullptr && stream->captured != nullptr ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent* made, unsigned) { return *made = nullptr, CUDA_SUCCESS; }
CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }

/// The image says in text, a line each, what a kernel is called and which library has it.
CUresult cuModuleLoadData(CUmodule* made, const void* image) {
  std::istringstream lines(static_cast<const char*>(image));
  std::string name, path;
  *made = new CUmod_st;
  while (lines >> name >> path) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), CUDA_ERROR_INVALID_IMAGE;
    auto function = std::make_unique<CUfunc_st>();
    unsigned sizes[256];
    const auto count = reinterpret_cast<int (*)(unsigned*)>(dlsym(library, "parameter_sizes"))(sizes);
    function->name = name;
    function->sizes.assign(sizes, sizes + count);
    const auto launch = reinterpret_cast<int (*)(const unsigned*, const unsigned*, void**)>(dlsym(library, "launch"));
    function->run = [=](void** values, const unsigned* grid, const unsigned* block) { launch(grid, block, values); };
    (*made)->functions[name] = std::move(function);
  }
  return with_context();
}
CUresult cuModuleUnload(CUmodule module) { return delete module, CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* found, CUmodule module, const char* name) {
  const auto at = module->functions.find(name);
  if (at == module->functions.end()) return CUDA_ERROR_NOT_FOUND;
  return *found = at->second.get(), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) { return *value = 0, CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncGetName(const char** name, CUfunction function) { return *name = function->name.c_str(), CUDA_SUCCESS; }
CUresult cuKernelGetName(const char**, CUkernel) { return CUDA_ERROR_INVALID_HANDLE; }
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  if (index >= function->sizes.size()) return CUDA_ERROR_INVALID_VALUE;
  return *offset = 0, *size = function->sizes[index], CUDA_SUCCESS;
}
CUresult cuKernelGetParamInfo(CUkernel, size_t, size_t*, size_t*) { return CUDA_ERROR_INVALID_VALUE; }
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** values, void**) {
  auto node = std::make_unique<CUgraphNode_st>();
  node->function = function;
  for (size_t i = 0; i < function->sizes.size(); ++i) {
    const char* const from = static_cast<const char*>(values[i]);
    node->values.emplace_back(from, from + function->sizes[i]);
  }
  for (auto& value : node->values) node->pointers.push_back(value.data());
  const unsigned grid[] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const unsigned block[] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  std::memcpy(node->grid, grid, sizeof grid);
  std::memcpy(node->block, block, sizeof block);
  return add_or_run(config->hStream, std::move(node));
}

// ---------------------------------------------------------------- graphs

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  return stream->captured = new CUgraph_st, CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* made) {
  *made = stream->captured;
  return stream->captured = nullptr, CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const bool is = stream != nullptr && stream->captured != nullptr;
  return *status = is ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, with_context();
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph* graph,
                                   const CUgraphNode**, const CUgraphEdgeData**, size_t* count) {
  *graph = stream->captured, *count = 0;
  return cuStreamIsCapturing(stream, status);
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream, CUgraphNode*, const CUgraphEdgeData*, size_t, unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* made, CUgraph graph, const CUgraphNode*, size_t, CUgraph inner) {
  auto node = std::make_unique<CUgraphNode_st>();
  for (const auto& each : inner->nodes) node->inner.push_back(*each);
  *made = node.get();
  return graph->nodes.push_back(std::move(node)), CUDA_SUCCESS;
}
/// Each node is behind the one before it, and may begin early unless it waits.
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  *count = graph->nodes.empty() ? 0 : graph->nodes.size() - 1;
  for (size_t i = 0; from != nullptr && i < *count; ++i) {
    from[i] = graph->nodes[i].get(), to[i] = graph->nodes[i + 1].get();
    data[i] = {};
    data[i].type = to[i]->waits ? 0 : 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuGraphRemoveDependencies_v2(CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*, size_t) {
  return CUDA_SUCCESS;
}
CUresult cuGraphAddDependencies_v2(CUgraph, const CUgraphNode*, const CUgraphNode* to, const CUgraphEdgeData* data, size_t count) {
  for (size_t i = 0; data == nullptr && i < count; ++i) to[i]->waits = true;
  return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* found, size_t* count) {
  *count = graph->nodes.size();
  for (size_t i = 0; found != nullptr && i < *count; ++i) found[i] = graph->nodes[i].get();
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return *type = node->function != nullptr ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_GRAPH, CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* found) {
  *found = {};
  found->func = node->function, found->kernelParams = node->pointers.data();
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return set(*node, given), CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
  *made = new CUgraphExec_st;
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    const CUgraphNode node = graph->nodes[i].get();
    if (i > 0 && node->function != nullptr && node->function->name == "library_kernel" && !node->waits)
      return CUDA_ERROR_ILLEGAL_STATE;
    (*made)->nodes[node] = *node;
    (*made)->order.push_back(node);
  }
  return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return set(graph->nodes.at(node), given), CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream) {
  for (const CUgraphNode node : graph->order) graph->nodes.at(node).run();
  return with_context();
}
CUresult cuGraphDestroy(CUgraph graph) { return delete graph, CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec graph) { return delete graph, CUDA_SUCCESS; }

}  // extern "C"
