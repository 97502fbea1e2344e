// What `streaming.cuh` has, on this processor.

template <typename T, int N> inline Vector<T, N> read_once(const T* base) { return load<N>(base); }
