// Puts together what parts of the keys gave for the same rows: [B G, splits, rows of a group, width + 2],
// each with its largest score and the sum of its weights in front.
static void body(void* const* pointers, const long* n, long begin, long end) {
  const long splits = n[2], groups = n[3], sharing = n[4], rows = n[5], width = n[6];
  const long *result = n + 7, count = sharing * rows;
  for (long part = begin; part < end; part++) {
    const long m = part % count, group = part / count % groups, image = part / count / groups;
    const float* const found =
      static_cast<float*>(pointers[0]) + (part / count * splits * count + m) * (width + 2);
    const long next = count * (width + 2);
    float most = found[0], total = 0;
    for (long s = 1; s < splits; s++) most = found[s * next] > most ? found[s * next] : most;
    float* const y = static_cast<float*>(pointers[1]) + image * result[0] +
                     (group * sharing + m / rows) * result[1] + m % rows * result[2];
    for (long d = 0; d < width; d++) y[d] = 0;
    for (long s = 0; s < splits; s++) {
      const float* const x = found + s * next;
      const float factor = exp_of_term(x[0] - most);
      total += factor * x[1];
      for (long d = 0; d < width; d++) y[d] += factor * x[2 + d];
    }
    for (long d = 0; d < width; d++) y[d] /= total;
  }
}
