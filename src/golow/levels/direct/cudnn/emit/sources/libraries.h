// What cuDNN and cuBLASLt compute: a plan that cuDNN compiled, or a product by one of cuBLASLt's
// algorithms, as they were chosen where the program was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cudnn_backend.h>

#include "device.h"
#include "tensor_file.h"

namespace golow {

/// A number that a plan reads from the host's memory.
struct Number {
  std::int64_t identifier;
  Scalar value;
};

/// A plan of cuDNN. name: of its text in the constants. operands: their identifiers, in the order in
/// which a step gives them; 0 for one that the plan does not read. workspace: where the library's part
/// begins in that of a step, in bytes.
struct LibraryPlan {
  const char* name;
  std::vector<std::int64_t> operands;
  std::vector<Number> numbers;
  std::int64_t workspace;
};

/// A matrix as cuBLASLt reads it: column-major, with so many elements between columns and matrices.
struct Matrix {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t column, stride;
};

/// factor * op(a) op(b) + added * c. matrices: a, b, c, d. algorithm: the library's own bytes.
struct Product {
  cublasComputeType_t arithmetic;
  cublasOperation_t turned_a, turned_b;
  cublasLtEpilogue_t epilogue;
  float factor, added;
  int batch;
  Matrix matrices[4];
  std::uint64_t algorithm[8];
  std::size_t workspace;
};

/// Addresses of a product, in golow's order: a and b are the library's b and a. 0 is absent.
struct Operands {
  CUdeviceptr a, b, bias, c, d;
};

/// The libraries, on one stream. One thread may use it at a time.
class Libraries {
 public:
  /// constants: with the texts of plans.
  Libraries(CUstream stream, const TensorFile& constants);
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;
  ~Libraries();

  void load(const LibraryPlan& plan, const std::string& what);
  void load(const Product& product, const std::string& what);
  void run(const LibraryPlan& plan, const std::vector<CUdeviceptr>& operands, CUdeviceptr workspace,
           const std::string& what);
  void run(const Product& product, const Operands& operands, CUdeviceptr workspace, const std::string& what);

 private:
  struct Matmul;
  const CUstream stream_;
  const TensorFile& constants_;
  cudnnHandle_t cudnn_ = nullptr;
  cublasLtHandle_t lt_ = nullptr;
  std::map<std::string, cudnnBackendDescriptor_t> plans_;
  std::map<const Product*, std::unique_ptr<Matmul>> products_;
};

/// Throws Failure unless these are the versions for which plans were chosen; 0 for a library that none
/// of them needs. program: its name.
void require_versions(const char* program, std::size_t cudnn, std::size_t cublas);

}  // namespace golow
