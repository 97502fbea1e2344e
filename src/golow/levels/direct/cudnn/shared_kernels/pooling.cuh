// Pooling of images [n, h, w, c].
//
// Each axis of an image has windows; window o covers pixels begin(o) up to end(o). The result is
// the maximum or the mean over the windows of both axes. Each gradient is gathered: a pixel sums
// over the windows first(i) to last(i) that cover it. So no atomic additions are needed, and every
// element of dx is written.
//
//   strided:   start(o) = o * stride - before; taps at start + r * dilation, clipped to the image
//   adaptive:  floor(o * size / out) to ceil((o + 1) * size / out)
//
// A thread has N channels of one pixel, or of a tile of pixels. blockIdx.x is a row of an image,
// blockIdx.y a part of that row.

struct Strided {
  int size, out, kernel, stride, before, dilation;
  bool padding_counts;

  __device__ int start(int o) const { return o * stride - before; }
  __device__ int begin(int o) const { return max(start(o), 0); }
  __device__ int end(int o) const { return min(start(o) + kernel, size); }
  __device__ int extent(int o) const {
    return padding_counts ? min(start(o) + kernel, size + before) - start(o) : end(o) - begin(o);
  }
  __device__ int first(int i) const {
    const int reach = i + before - (kernel - 1) * dilation;
    return reach <= 0 ? 0 : (reach + stride - 1) / stride;
  }
  __device__ int last(int i) const { return min((i + before) / stride, out - 1); }
};

struct Adaptive {
  int size, out;

  __device__ int begin(int o) const { return o * size / out; }
  __device__ int end(int o) const { return ((o + 1) * size + out - 1) / out; }
  __device__ int extent(int o) const { return end(o) - begin(o); }
  __device__ int first(int i) const { return i * out / size; }
  __device__ int last(int i) const { return ((i + 1) * out + size - 1) / size - 1; }
};

// The position of a thread in an image of `height` rows; a pixel has `groups` vectors of channels.
struct Place {
  int y, x, group;
  size_t image;
  bool inside;

  __device__ Place(int height, int width, int groups) {
    const int index = blockIdx.y * blockDim.x + threadIdx.x;
    image = blockIdx.x / height;
    y = blockIdx.x % height;
    x = index / groups;
    group = index % groups;
    inside = x < width;
  }
  // Index of this thread's first channel at a pixel of an image of that size.
  __device__ size_t at(int row, int column, int height, int width, int groups, int n) const {
    const size_t pixel = (image * height + row) * width + column;
    return (pixel * groups + group) * n;
  }
};

#define WINDOWS                                                                         \
  int groups, int size_y, int out_y, int kernel_y, int stride_y, int before_y,        \
    int dilation_y, int size_x, int out_x, int kernel_x, int stride_x, int before_x, \
    int dilation_x
#define DOWN(counts) {size_y, out_y, kernel_y, stride_y, before_y, dilation_y, counts}
#define ACROSS(counts) {size_x, out_x, kernel_x, stride_x, before_x, dilation_x, counts}

