// Rows with gaps between them, copied to rows without gaps.
//
// A thread stores VECTOR elements that are aligned in y, whatever row they belong to. Their elements
// of x are adjacent too, but for those of a vector that ends one row and begins the next; where a
// row of x begins is rarely aligned, so they are loaded one by one, mostly from lines that the first
// load has brought.
//
// The generated code before this file defines Index, the types X and Y, and VECTOR.

__global__ void packed_rows(const X* x, Y* y, Index count, Index width, Index gap, Index start) {
  const Index stride = step<VECTOR, Index>();
  for (Index i = first_index<VECTOR, Index>(); i < count; i += stride) {
    const Index row = i / width;
    Index column = i - row * width;
    const X* from = x + start + i + row * gap;
    Vector<Y, VECTOR> made;
    if (column + VECTOR <= width) {
#pragma unroll
      for (int k = 0; k < VECTOR; ++k) made.item[k] = convert<Y>(from[k]);
    } else {
      for (Index k = 0; k < VECTOR && i + k < count; ++k) {
        made.item[k] = convert<Y>(*from++);
        if (++column == width) {
          column = 0;
          from += gap;
        }
      }
    }
    store<VECTOR>(y, i, count, made);
  }
}
