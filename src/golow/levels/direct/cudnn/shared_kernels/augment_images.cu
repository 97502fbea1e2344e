// Prepares images of a data set for a network: shifted, flipped and normalised,
//
//   out[n][c][i][j] = x * scale[c] + shift[c],   x = pixels[n][c][i + dy][k + dx], 0 outside,
//
// with (dy, dx) the image's shift and k = j, or width - 1 - j in a flipped image. Product and sum
// are rounded separately, never fused, so that every level computes the same bits.

// shifts, flips: null if no image is shifted, or flipped. A block has one row of a channel.
__global__ void normalise(
    const unsigned char* pixels, const float* scale, const float* shift, const signed char* shifts,
    const unsigned char* flips, float* out, int channels, int height, int width) {
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= width) return;
  const size_t row = blockIdx.x, plane = row / height;
  const size_t image = plane / channels, channel = plane % channels;
  int y = row % height;
  int x = flips != nullptr && flips[image] ? width - 1 - column : column;
  if (shifts != nullptr) {
    y += shifts[2 * image];
    x += shifts[2 * image + 1];
  }
  const bool inside = 0 <= y && y < height && 0 <= x && x < width;
  const float pixel = inside ? pixels[(plane * height + y) * width + x] : 0.0f;
  out[row * width + column] = __fadd_rn(__fmul_rn(pixel, scale[channel]), shift[channel]);
}
