#include "libraries.h"

namespace golow {
namespace {

void check(cudnnStatus_t status, const std::string& what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[512] = {};
  cudnnGetLastErrorString(details, sizeof details);
  throw Failure(status == CUDNN_STATUS_ALLOC_FAILED ? Status::memory : Status::library,
                what + ": cuDNN: " + cudnnGetErrorString(status) + " " + details);
}

void check(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure(status == CUBLAS_STATUS_ALLOC_FAILED ? Status::memory : Status::library,
                what + ": cuBLASLt: " + cublasLtGetStatusName(status));
}

/// A descriptor of cuDNN's that goes with this object.
class Descriptor {
 public:
  Descriptor(cudnnBackendDescriptorType_t type, const std::string& what) : what_(what) {
    check(cudnnBackendCreateDescriptor(type, &handle_), what_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
  }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t count,
           const void* values) {
    check(cudnnBackendSetAttribute(handle_, name, type, static_cast<std::int64_t>(count), values), what_);
  }
  void finish() { check(cudnnBackendFinalize(handle_), what_); }
  cudnnBackendDescriptor_t handle() const { return handle_; }
  cudnnBackendDescriptor_t release() {
    const cudnnBackendDescriptor_t handle = handle_;
    handle_ = nullptr;
    return handle;
  }

 private:
  const std::string& what_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace

struct Libraries::Matmul {
  Matmul(const Product& product, const std::string& what) {
    try {
      check(cublasLtMatmulDescCreate(&operation, product.arithmetic, CUDA_R_32F), what);
      set(CUBLASLT_MATMUL_DESC_TRANSA, product.turned_a, what);
      set(CUBLASLT_MATMUL_DESC_TRANSB, product.turned_b, what);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, product.epilogue, what);
      for (std::size_t i = 0; i < 4; ++i) {
        const Matrix& matrix = product.matrices[i];
        check(cublasLtMatrixLayoutCreate(&layouts[i], matrix.type, matrix.rows, matrix.columns, matrix.column), what);
        if (product.batch == 1) continue;
        set(layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, product.batch, what);
        set(layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.stride, what);
      }
    } catch (...) {
      release();
      throw;
    }
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;
  ~Matmul() { release(); }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t name, const Value& value, const std::string& what) {
    check(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof value), what);
  }
  template <typename Value>
  void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name, const Value& value,
           const std::string& what) {
    check(cublasLtMatrixLayoutSetAttribute(layout, name, &value, sizeof value), what);
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layouts[4] = {};

 private:
  void release() {
    for (const cublasLtMatrixLayout_t layout : layouts)
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
  }
};

Libraries::Libraries(CUstream stream, const TensorFile& constants) : stream_(stream), constants_(constants) {}

Libraries::~Libraries() {
  products_.clear();
  for (const auto& [name, plan] : plans_) cudnnBackendDestroyDescriptor(plan);
  if (lt_ != nullptr) cublasLtDestroy(lt_);
  if (cudnn_ != nullptr) cudnnDestroy(cudnn_);
}

void Libraries::load(const LibraryPlan& plan, const std::string& what) {
  if (cudnn_ == nullptr) {
    check(cudnnCreate(&cudnn_), "cudnnCreate");
    check(cudnnSetStream(cudnn_, reinterpret_cast<cudaStream_t>(stream_)), "cudnnSetStream");
  }
  if (plans_.count(plan.name) != 0) return;
  const StoredTensor& text = require(constants_, plan.name);
  Descriptor made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, what);
  made.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, text.bytes, text.data);
  made.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn_);
  made.finish();
  plans_[plan.name] = made.release();
}

void Libraries::load(const Product& product, const std::string& what) {
  if (lt_ == nullptr) check(cublasLtCreate(&lt_), "cublasLtCreate");
  std::unique_ptr<Matmul>& matmul = products_[&product];
  if (matmul == nullptr) matmul = std::make_unique<Matmul>(product, what);
}

void Libraries::run(const LibraryPlan& plan, const std::vector<CUdeviceptr>& operands, CUdeviceptr workspace,
                    const std::string& what) {
  std::vector<const void*> addresses;
  std::vector<std::int64_t> identifiers;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (plan.operands[i] == 0) continue;
    identifiers.push_back(plan.operands[i]);
    addresses.push_back(reinterpret_cast<const void*>(operands[i]));
  }
  for (const Number& number : plan.numbers) {
    identifiers.push_back(number.identifier);
    addresses.push_back(number.value.bytes);
  }
  const void* const own = workspace == 0 ? nullptr : reinterpret_cast<const void*>(
      workspace + static_cast<CUdeviceptr>(plan.workspace));
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.size(), addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, identifiers.size(), identifiers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &own);
  pack.finish();
  check(cudnnBackendExecute(cudnn_, plans_.at(plan.name), pack.handle()), what);
}

void Libraries::run(const Product& product, const Operands& operands, CUdeviceptr workspace,
                    const std::string& what) {
  Matmul& matmul = *products_.at(&product);
  if (operands.bias != 0) matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias, what);
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  cublasLtMatmulAlgo_t algorithm = {};
  static_assert(sizeof algorithm.data == sizeof product.algorithm, "an algorithm has 64 bytes");
  __builtin_memcpy(algorithm.data, product.algorithm, sizeof algorithm.data);
  check(cublasLtMatmul(lt_, matmul.operation, &product.factor, at(operands.b), matmul.layouts[0],
                       at(operands.a), matmul.layouts[1], &product.added,
                       at(operands.c != 0 ? operands.c : operands.d), matmul.layouts[2], at(operands.d),
                       matmul.layouts[3], &algorithm, at(product.workspace == 0 ? 0 : workspace),
                       product.workspace, reinterpret_cast<cudaStream_t>(stream_)),
        what);
}

void require_versions(const char* program, std::size_t cudnn, std::size_t cublas) {
  const auto require = [&](const char* library, std::size_t found, std::size_t wanted) {
    if (wanted == 0 || found == wanted) return;
    throw Failure(Status::library, std::string("the library is ") + library + " " + std::to_string(found) + "; " +
                                       program + " was written for " + std::to_string(wanted) +
                                       ": write it again here with golow emit, or load that version");
  };
  require("cuDNN", cudnnGetVersion(), cudnn);
  require("cuBLASLt", cublasLtGetVersion(), cublas);
}

}  // namespace golow
