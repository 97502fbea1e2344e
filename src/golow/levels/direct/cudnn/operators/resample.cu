// Images and volumes [n, depth, height, width, c] in another size, and the gradient. An axis of the
// same size is left alone: its elements are read where they are.

// Which elements of an axis one of the result is made of: low, and the next one with this weight.
struct Taps {
  int low, high;
  float weight;
};
template <bool LINEAR> __device__ inline Taps taps(int place, int size, int result) {
  if constexpr (!LINEAR) {
    const int low = static_cast<int>(static_cast<long long>(place) * size / result);
    return {low, low, 0.0f};
  }
  const float ratio = static_cast<float>(size) / result;
  const float source = fmaxf((place + 0.5f) * ratio - 0.5f, 0.0f);
  const int low = min(static_cast<int>(source), size - 1);
  return {low, min(low + 1, size - 1), source - low};
}

// The weight of an element in one of the result.
__device__ inline float weight_of(const Taps& taps, int element) {
  return (taps.low == element ? 1.0f - taps.weight : 0.0f) +
         (taps.high == element ? taps.weight : 0.0f);
}

struct Sizes { int depth, height, width; };
// Elements from one image, plane, row and pixel to the next.
struct Steps { long long image, plane, row, pixel; };

struct Pixel { int group, column, row, plane; long long image; };
__device__ inline Pixel pixel_of(long long i, int groups, const Sizes& sizes) {
  Pixel found;
  found.group = static_cast<int>(i % groups), i /= groups;
  found.column = static_cast<int>(i % sizes.width), i /= sizes.width;
  found.row = static_cast<int>(i % sizes.height), i /= sizes.height;
  found.plane = static_cast<int>(i % sizes.depth), found.image = i / sizes.depth;
  return found;
}

template <typename T, int V, bool LINEAR>
__global__ void resample(const T* x, T* y, long long count, int groups, int depth, int height,
                         int width, int out_depth, int out_height, int out_width,
                         long long x_image, long long x_plane, long long x_row, long long x_pixel,
                         long long y_image, long long y_plane, long long y_row,
                         long long y_pixel) {
  const Sizes out = {out_depth, out_height, out_width};
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const Pixel at = pixel_of(i, groups, out);
    const Taps planes = taps<LINEAR>(at.plane, depth, out_depth);
    const Taps rows = taps<LINEAR>(at.row, height, out_height);
    const Taps columns = taps<LINEAR>(at.column, width, out_width);
    const T* image = x + at.image * x_image + at.group * V;
    float sum[V] = {};
    for (int corner = 0; corner < 8; ++corner) {
      const bool far = corner & 1, lower = corner & 2, behind = corner & 4;
      const float weight = (far ? columns.weight : 1.0f - columns.weight) *
                           (lower ? rows.weight : 1.0f - rows.weight) *
                           (behind ? planes.weight : 1.0f - planes.weight);
      if (weight == 0.0f) continue;
      const Vector<T, V> read = load<V>(image + (behind ? planes.high : planes.low) * x_plane +
                                        (lower ? rows.high : rows.low) * x_row +
                                        (far ? columns.high : columns.low) * x_pixel);
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] += weight * static_cast<float>(read.item[v]);
    }
    Vector<T, V> made;
#pragma unroll
    for (int v = 0; v < V; ++v) made.item[v] = static_cast<T>(sum[v]);
    store<V>(y + at.image * y_image + at.plane * y_plane + at.row * y_row + at.column * y_pixel +
                 at.group * V,
             made);
  }
}

// The elements of the result that may be made of one of an axis: from first to before last.
struct Range { int first, last; };
template <bool LINEAR> __device__ inline Range readers(int element, int size, int result) {
  if constexpr (!LINEAR) {
    const int factor = result / size;
    return {element * factor, (element + 1) * factor};
  }
  const float ratio = static_cast<float>(result) / size;
  const int first = static_cast<int>((element - 0.5f) * ratio - 0.5f) - 1;
  const int last = static_cast<int>((element + 1.5f) * ratio - 0.5f) + 2;
  return {element == 0 ? 0 : max(first, 0), element == size - 1 ? result : min(last, result)};
}

// dx, dense like dy; each is the sum of what it gave, in a fixed order.
template <typename T, int V, bool LINEAR>
__global__ void resample_backward(const T* dy, T* dx, long long count, int groups, int depth,
                                  int height, int width, int out_depth, int out_height,
                                  int out_width) {
  const Sizes sizes = {depth, height, width};
  const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    const Pixel at = pixel_of(i, groups, sizes);
    const Range planes = readers<LINEAR>(at.plane, depth, out_depth);
    const Range rows = readers<LINEAR>(at.row, height, out_height);
    const Range columns = readers<LINEAR>(at.column, width, out_width);
    float sum[V] = {};
    for (int plane = planes.first; plane < planes.last; ++plane) {
      const float of_plane = weight_of(taps<LINEAR>(plane, depth, out_depth), at.plane);
      if (of_plane == 0.0f) continue;
      for (int row = rows.first; row < rows.last; ++row) {
        const float of_row = of_plane * weight_of(taps<LINEAR>(row, height, out_height), at.row);
        if (of_row == 0.0f) continue;
        const long long line =
            ((at.image * out_depth + plane) * out_height + row) * static_cast<long long>(out_width);
        for (int column = columns.first; column < columns.last; ++column) {
          const float weight =
              of_row * weight_of(taps<LINEAR>(column, width, out_width), at.column);
          if (weight == 0.0f) continue;
          const Vector<T, V> read = load<V>(dy + ((line + column) * groups + at.group) * V);
#pragma unroll
          for (int v = 0; v < V; ++v) sum[v] += weight * static_cast<float>(read.item[v]);
        }
      }
    }
    Vector<T, V> made;
#pragma unroll
    for (int v = 0; v < V; ++v) made.item[v] = static_cast<T>(sum[v]);
    store<V>(dx + i * V, made);
  }
}
