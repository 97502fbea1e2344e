// Stands in for cuDNN and cuBLASLt in projects of `golow emit --level cudnn`: what their engines
// compute, naively and in float32.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cudnn_backend.h>

#include "gpu_stand_in.h"

// ---------------------------------------------------------------- cuBLASLt

struct LtDescription {
  cublasOperation_t turned[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  unsigned epilogue = 1;
  const void* bias = nullptr;
};

float number_at(const void* memory, cudaDataType_t type, int64_t place) {
  if (type == CUDA_R_32F) return static_cast<const float*>(memory)[place];
  if (type == CUDA_R_16F) return static_cast<const _Float16*>(memory)[place];
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(memory)[place]) << 16;
  float found = 0;
  return std::memcpy(&found, &bits, sizeof found), found;
}

/// Rounded to the nearest, ties to even.
void write_number(void* memory, cudaDataType_t type, int64_t place, float number) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(memory)[place] = number;
  } else if (type == CUDA_R_16F) {
    static_cast<_Float16*>(memory)[place] = static_cast<_Float16>(number);
  } else {
    uint32_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    static_cast<uint16_t*>(memory)[place] = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}
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
/// Of floats of 16 and 32 bits. The algorithm is the test's.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t of, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                              const void* c, cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes, cudaStream_t stream) {
  const LtDescription description = *reinterpret_cast<LtDescription*>(of);
  const auto layout = [](cublasLtMatrixLayout_t of) { return *reinterpret_cast<LtLayout*>(of); };
  const LtLayout A = layout(la), B = layout(lb), C = layout(lc), D = layout(ld);
  if (algorithm->data[0] != 1 || algorithm->data[7] != 8) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != 0) std::memset(workspace, 0xFF, bytes);
  const float factor = *static_cast<const float*>(alpha), added = *static_cast<const float*>(beta);
  enqueue(reinterpret_cast<CUstream>(stream), [=] {
    const auto at = [](const LtLayout& of, const void* memory, int batch, int64_t row, int64_t column, bool turned) {
      const int64_t place = turned ? row * of.column + column : row + column * of.column;
      return number_at(memory, of.type, batch * of.stride + place);
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
          if (description.epilogue & 4) sum += number_at(description.bias, D.type, row);
          if (description.epilogue & 2) sum = std::fmax(sum, 0);
          write_number(d, D.type, batch * D.stride + row + column * D.column, static_cast<float>(sum));
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
