// Stands in for CUDA's driver, cuDNN and cuBLASLt in projects of `golow emit --level cudnn`: the GPU's
// memory is this processor's, kernels are libraries that `cuda_host.py` compiled, and the libraries'
// results are computed naively. What is enqueued runs at once, unless its stream is being captured.
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

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn_backend.h>

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

/// A call of a library: one kernel without parameters that could be pointed elsewhere.
void enqueue(CUstream stream, std::function<void()> call) {
  static std::vector<std::unique_ptr<CUfunc_st>> kept;
  kept.push_back(std::make_unique<CUfunc_st>());
  kept.back()->name = "library_kernel";
  kept.back()->run = [call = std::move(call)](void**, const unsigned*, const unsigned*) { call(); };
  auto node = std::make_unique<CUgraphNode_st>();
  node->function = kept.back().get();
  add_or_run(stream, std::move(node));
}

CUresult with_context(CUresult status = CUDA_SUCCESS) {
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : status;
}

void set(CUgraphNode_st& node, const CUDA_KERNEL_NODE_PARAMS* given) {
  for (size_t i = 0; i < node.values.size(); ++i)
    std::memcpy(node.values[i].data(), given->kernelParams[i], node.values[i].size());
}

}  // namespace

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

// ---------------------------------------------------------------- cuBLASLt

struct LtDescription {
  cublasOperation_t turned[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  unsigned epilogue = 1;
  const float* bias = nullptr;
};
struct LtLayout {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t column, stride = 0;
  int batch = 1;
};

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) { return *made = nullptr, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_STAND_IN"; }
size_t cublasLtGetVersion() {
  const char* const other = std::getenv("STAND_IN_CUBLAS");
  return other != nullptr ? std::strtoul(other, nullptr, 10) : 130000;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return *made = reinterpret_cast<cublasLtMatmulDesc_t>(new LtDescription), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) {
  return delete reinterpret_cast<LtDescription*>(made), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  auto& description = *reinterpret_cast<LtDescription*>(made);
  void* const place = name == CUBLASLT_MATMUL_DESC_TRANSA     ? static_cast<void*>(&description.turned[0])
                      : name == CUBLASLT_MATMUL_DESC_TRANSB   ? static_cast<void*>(&description.turned[1])
                      : name == CUBLASLT_MATMUL_DESC_EPILOGUE ? static_cast<void*>(&description.epilogue)
                                                              : static_cast<void*>(&description.bias);
  return std::memcpy(place, value, bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t column) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new LtLayout{type, rows, columns, column});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) {
  return delete reinterpret_cast<LtLayout*>(made), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t made, cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, size_t bytes) {
  auto& layout = *reinterpret_cast<LtLayout*>(made);
  void* const place = name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? static_cast<void*>(&layout.batch)
                                                                 : static_cast<void*>(&layout.stride);
  return std::memcpy(place, value, bytes), CUBLAS_STATUS_SUCCESS;
}
/// Of float32 alone. The algorithm is the test's.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t of, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                              const void* c, cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes, cudaStream_t stream) {
  const LtDescription description = *reinterpret_cast<LtDescription*>(of);
  const auto layout = [](cublasLtMatrixLayout_t of) { return *reinterpret_cast<LtLayout*>(of); };
  const LtLayout A = layout(la), B = layout(lb), C = layout(lc), D = layout(ld);
  if (algorithm->data[0] != 1 || algorithm->data[7] != 8 || A.type != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0) std::memset(workspace, 0xFF, bytes);
  const float factor = *static_cast<const float*>(alpha), added = *static_cast<const float*>(beta);
  enqueue(reinterpret_cast<CUstream>(stream), [=] {
    const auto at = [](const LtLayout& of, const void* memory, int batch, int64_t row, int64_t column, bool turned) {
      const int64_t place = turned ? row * of.column + column : row + column * of.column;
      return static_cast<const float*>(memory)[batch * of.stride + place];
    };
    const bool turned_a = description.turned[0] == CUBLAS_OP_T, turned_b = description.turned[1] == CUBLAS_OP_T;
    const int64_t inner = static_cast<int64_t>(turned_a ? A.rows : A.columns);
    for (int batch = 0; batch < D.batch; ++batch)
      for (int64_t row = 0; row < static_cast<int64_t>(D.rows); ++row)
        for (int64_t column = 0; column < static_cast<int64_t>(D.columns); ++column) {
          double sum = 0;
          for (int64_t k = 0; k < inner; ++k)
            sum += static_cast<double>(at(A, a, batch, row, k, turned_a)) * at(B, b, batch, k, column, turned_b);
          sum *= factor;
          if (added != 0) sum += added * at(C, c, batch, row, column, false);
          if (description.epilogue & 4) sum += description.bias[row];
          if (description.epilogue & 2) sum = std::fmax(sum, 0);
          static_cast<float*>(d)[batch * D.stride + row + column * D.column] = static_cast<float>(sum);
        }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"

// ---------------------------------------------------------------- cuDNN

/// A descriptor: a plan, whose text are the numbers of a convolution; or what it runs on.
struct Described {
  std::string text;
  std::vector<void*> pointers;
  std::vector<int64_t> identifiers;
};
struct cudnnContext {
  CUstream stream = nullptr;
};

extern "C" {

size_t cudnnGetVersion() { return 91400; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "CUDNN_STATUS_STAND_IN"; }
void cudnnGetLastErrorString(char* message, size_t) { *message = 0; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* made) { return *made = new cudnnContext, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t made) { return delete made, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return handle->stream = reinterpret_cast<CUstream>(stream), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t* made) {
  return *made = new Described, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t made) {
  return delete static_cast<Described*>(made), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t count, const void* values) {
  auto& described = *static_cast<Described*>(made);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
    described.text.assign(static_cast<const char*>(values), static_cast<size_t>(count));
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
    described.pointers.assign(static_cast<void* const*>(values), static_cast<void* const*>(values) + count);
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
    described.identifiers.assign(static_cast<const int64_t*>(values), static_cast<const int64_t*>(values) + count);
  return CUDNN_STATUS_SUCCESS;
}
/// A convolution of float32 in NHWC. Operands by identifier: 1 image, 2 weight, 3 result, 4 bias, 5
/// residual, 6 a number by which it is multiplied.
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  std::istringstream numbers(static_cast<Described*>(plan)->text);
  long n, c, h, w, k, oh, ow, r, s, top, left, down, right, dilated_down, dilated_right, groups, relu;
  numbers >> n >> c >> h >> w >> k >> oh >> ow >> r >> s >> top >> left >> down >> right >> dilated_down >>
      dilated_right >> groups >> relu;
  if (!numbers) return CUDNN_STATUS_BAD_PARAM;
  std::map<int64_t, float*> at;
  const auto& given = *static_cast<Described*>(pack);
  for (size_t i = 0; i < given.identifiers.size(); ++i)
    at[given.identifiers[i]] = static_cast<float*>(given.pointers[i]);
  if (at[1] == nullptr || at[2] == nullptr || at[3] == nullptr || at[6] == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const float factor = *at[6];
  enqueue(handle->stream, [=]() mutable {
    const long own = c / groups;
    for (long i = 0; i < n * oh * ow * k; ++i) {
      const long filter = i % k, x = i / k % ow, y = i / k / ow % oh, image = i / k / ow / oh;
      double sum = 0;
      for (long a = 0; a < r; ++a)
        for (long b = 0; b < s; ++b) {
          const long row = y * down - top + a * dilated_down, column = x * right - left + b * dilated_right;
          if (row < 0 || row >= h || column < 0 || column >= w) continue;
          for (long channel = 0; channel < own; ++channel)
            sum += static_cast<double>(at[1][((image * h + row) * w + column) * c + filter / (k / groups) * own + channel]) *
                   at[2][((filter * r + a) * s + b) * own + channel];
        }
      sum *= factor;
      if (at[4] != nullptr) sum += at[4][filter];
      if (at[5] != nullptr) sum += at[5][i];
      at[3][i] = static_cast<float>(relu ? std::fmax(sum, 0) : sum);
    }
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
