// Weights w = g v / |v| of layers, where |v| is the norm of a row of v, and their gradients: with h
// the gradient of w,
//
//   dg = sum(h v) / |v|,   dv = g / |v| (h - v dg / |v|)
//
// A block takes a row of one layer. Its elements are side by side in v and dv, and wherever the
// layer's convolution has them in w and h. What nothing reads is absent.
//
// The generated code before this file defines POINTERS; SIZES, the ends of the layers' rows and where
// their elements are; FIND, which finds the layer to which the block's row belongs.

// A row: its number, its elements, and where they are in w and h. inner: those that are equally far
// from one another.
struct Row {
  int number, columns, inner, row_step, outer_step, inner_step;

  __device__ size_t in_v() const { return static_cast<size_t>(number) * columns; }
  __device__ size_t in_w(int i) const {
    return static_cast<size_t>(number) * row_step + i / inner * outer_step + i % inner * inner_step;
  }
};

template <typename W>
struct Weights {
  const float *v, *g;
  W* w;
  float* norms;
  Row row;

  template <int THREADS>
  __device__ void compute() const {
    const float* given = v + row.in_v();
    float squares = 0;
    for (int i = threadIdx.x; i < row.columns; i += THREADS) squares += given[i] * given[i];
    const float norm = sqrtf(reduce<THREADS>(squares, Sum()));
    const float scale = g[row.number] / norm;
    if (w) {
      for (int i = threadIdx.x; i < row.columns; i += THREADS)
        w[row.in_w(i)] = static_cast<W>(given[i] * scale);
    }
    if (norms && threadIdx.x == 0) norms[row.number] = norm;
  }
};

template <typename H, typename V, typename G>
struct Gradients {
  const H* h;
  const float *v, *g, *norms;
  V* dv;
  G* dg;
  Row row;

  template <int THREADS>
  __device__ void compute() const {
    const float* given = v + row.in_v();
    float product = 0;
    for (int i = threadIdx.x; i < row.columns; i += THREADS)
      product += static_cast<float>(h[row.in_w(i)]) * given[i];
    const float norm = norms[row.number];
    const float along = reduce<THREADS>(product, Sum()) / norm;
    const float scale = g[row.number] / norm, part = along / norm;
    if (dv) {
      for (int i = threadIdx.x; i < row.columns; i += THREADS) {
        const float value = static_cast<float>(h[row.in_w(i)]) - given[i] * part;
        dv[row.in_v() + i] = static_cast<V>(scale * value);
      }
    }
    if (dg && threadIdx.x == 0) dg[row.number] = static_cast<G>(along);
  }
};

template <typename Layer, int THREADS>
__global__ void weight_norm(POINTERS SIZES) {
  const int block = blockIdx.x;
  Layer layer;
  FIND
  layer.template compute<THREADS>();
}
