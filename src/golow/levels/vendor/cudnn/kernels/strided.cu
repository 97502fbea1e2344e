// A copy between two tensors with the same elements and different layouts:
//
//     y[y_start + sum_k i_k y_stride_k] = x[x_start + sum_k i_k x_stride_k],  0 <= i_k < shape_k
//
// Strides of zero repeat, offsets take a part out or put it in, and strides in another order
// permute. The last axis runs over adjacent threads.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename Y, typename X>
__device__ Y converted(X x) {
    return (Y)(float)x;
}

template <>
__device__ long long converted(long long x) {  // float32 could not hold these values
    return x;
}

template <typename X, typename Y>
__global__ void strided_copy(const X* x, Y* y, long long count, int size_1, int size_2, int size_3,
                             int size_4, long long x_start, long long x_0, long long x_1,
                             long long x_2, long long x_3, long long x_4, long long y_start,
                             long long y_0, long long y_1, long long y_2, long long y_3,
                             long long y_4) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        long long rest = i;
        const int i_4 = rest % size_4;
        rest /= size_4;
        const int i_3 = rest % size_3;
        rest /= size_3;
        const int i_2 = rest % size_2;
        rest /= size_2;
        const int i_1 = rest % size_1;
        const long long i_0 = rest / size_1;
        y[y_start + i_0 * y_0 + i_1 * y_1 + i_2 * y_2 + i_3 * y_3 + i_4 * y_4] =
            converted<Y>(
                x[x_start + i_0 * x_0 + i_1 * x_1 + i_2 * x_2 + i_3 * x_3 + i_4 * x_4]);
    }
}
