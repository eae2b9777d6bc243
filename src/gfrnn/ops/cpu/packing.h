// A layer's weights, packed for one direction of the computation, and how rows are shared among threads.
#pragma once
#include "gemm.h"
#include "layout.h"

namespace {

// A product's weights: packed, or, when `room` is empty, as rows where they lie.
template <class F>
struct Packed {
  Room<F> room;
  Rows<const F> rows;
  int64_t K = 0, N = 0;
};

// to += a * weights. With fewer rows in the batch than threads, the threads share the columns of each product.
template <class F>
void apply(const Packed<F>& w, const Parallel* split, const F* a, int64_t lda, int64_t M, const F* const* from,
           F* const* to, int64_t column) {
  auto part = [&](int64_t i, int64_t parts) {
    if (w.room.get())
      multiply<F>(a, lda, M, w.room.get(), w.K, w.N, from, to, column, i, parts);
    else
      multiply_unpacked<F>(a, lda, M, w.rows.data(), w.K, w.N, from, to, column, i, parts);
  };
  if (split)
    (*split)(split->threads, [&](int64_t i) { part(i, split->threads); });
  else
    part(0, 1);
}

enum Packing { FORWARD, BACKWARD, UNPACKED };  // UNPACKED: forward, without

template <class F>
Packed<F> pack(const Rows<const F>& rows, int64_t offset, int64_t width, Packing packing) {
  const int64_t R = rows.size();
  const bool forward = packing != BACKWARD;
  Packed<F> packed;
  packed.rows = rows;
  for (auto& row : packed.rows) row += offset;
  packed.K = forward ? width : R;
  packed.N = forward ? R : width;
  if (packing == UNPACKED) return packed;
  packed.room = Room<F>(packed_size<F>(packed.K, packed.N));
  if (forward)
    pack_transposed<F>(packed.rows.data(), R, width, packed.room.get());
  else
    pack_straight<F>(packed.rows.data(), R, width, packed.room.get());
  return packed;
}

// A layer's weights, packed for one direction of the computation.
template <class F>
struct PackedLayer {
  Packed<F> x, below;                  // of W and w_g: the part for x_t (dense input), the part for h_t^{j-1}
  List<Packed<F>> past;         // of recurrent_products
  List<Recurrent<const F>> how;  // and what each of them is
  Room<F> table;  // (entries, P): what a row starts from, the bias, or the bias plus the column of W for each index
};

template <class F>
PackedLayer<F> pack_layer(const Forward<F>& f, int64_t j, Packing packing) {
  const Shape& s = f.shape;
  const Layer<const F>& w = f.layers[j];
  const Rows<const F> in = input_rows<const F>(s, w, j);
  PackedLayer<F> packed;
  if (s.sees_x(j) && !s.indices) packed.x = pack<F>(in, 0, s.I, packing);
  if (j > 0) packed.below = pack<F>(in, s.x_width(j), s.H, packing);
  packed.how = recurrent_products<const F>(s, w, j);
  for (const auto& product : packed.how) packed.past.push(pack<F>(product.rows, 0, product.K, packing));

  if (packing == FORWARD) packed.table = start_table<F>(s, w, j);
  if (packing == UNPACKED) packed.table = start_rows<F>(s, w, j, f.index);
  return packed;
}

template <class F>
List<PackedLayer<F>> pack_layers(const Forward<F>& f, Packing packing, const Parallel& parallel) {
  List<PackedLayer<F>> packed(f.shape.L);
  parallel(f.shape.L, [&](int64_t j) { packed[j] = pack_layer<F>(f, j, packing); });
  return packed;
}

// Contiguous ranges of rows with about equally many running steps each.
List<int64_t> split_rows(const Shape& s, const int64_t* active, int64_t parts) {
  int64_t total = 0, done = 0, t = s.T;
  for (int64_t i = 0; i < s.T; i++) total += active[i];
  List<int64_t> bounds;
  bounds.push(0);
  for (int64_t b = 0; b < s.B; b++) {
    while (t > 0 && active[t - 1] <= b) t--;  // the length of row b, which falls with b
    done += t;
    if (done * parts >= total * bounds.size() && bounds.size() < parts)
      bounds.push(b + 1);
  }
  while (bounds.size() <= parts) bounds.push(s.B);
  return bounds;
}

int64_t running(const int64_t* active, int64_t t, int64_t first, int64_t last) {
  return larger(0, smaller(active[t] - first, last - first));
}
}  // namespace
