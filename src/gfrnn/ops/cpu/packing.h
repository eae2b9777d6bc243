// A layer's weights, packed for one direction of the computation, and how rows are shared among threads.
#pragma once
#include "gemm.h"
#include "layout.h"

namespace {

// A product's weights: packed, or, when `data` is null, as rows where they lie.
template <class Mode>
struct Packed {
  using F = typename Mode::Number;
  typename Mode::Factor* data = nullptr;
  Rows<const F> rows;
  int64_t K = 0, N = 0;
};

// to += a * weights. With fewer rows in the batch than threads, the threads share the columns of each product.
// room: for the factors of the M rows of a, where those are not as they lie (factor_room()); known: they are there already.
template <class Mode, class F = typename Mode::Number>
void apply(const Packed<Mode>& w, const Parallel* split, typename Mode::Factor* room, const F* a, int64_t lda, int64_t M,
           const F* const* from, F* const* to, int64_t column, Errands* errands = nullptr,
           const FactorRows<Mode>* known = nullptr) {
  const FactorRows<Mode> factors = !w.data ? FactorRows<Mode>{} : known ? *known : factor_rows<Mode>(a, lda, M, w.K, room);
  auto part = [&](int64_t i, int64_t parts) {
    if (w.data)
      multiply<Mode>(factors, M, w.data, w.K, w.N, from, to, column, i, parts, split ? nullptr : errands);
    else
      multiply_unpacked<Mode>(a, lda, M, w.rows.data(), w.K, w.N, from, to, column, i, parts);
  };
  if (split)
    (*split)(split->threads, [&](int64_t i) {
      const TileRegisters<Mode> registers;
      part(i, split->threads);
    });
  else
    part(0, 1);
}

template <class Mode>
Room<typename Mode::Factor> factor_room(int64_t rows, int64_t most_terms) {
  const int64_t read = Mode::TILED ? rows + SIDE : rows;  // a tile reads all its rows, there or not
  return Room<typename Mode::Factor>(Mode::AS_THEY_LIE ? 0 : read * padded<Mode>(most_terms));
}

enum Packing { FORWARD, BACKWARD, UNPACKED };  // UNPACKED: forward, weights as they lie

template <class Mode>
struct PackedLayer {
  using F = typename Mode::Number;
  Packed<Mode> x, below;            // of W and w_g: the part for x_t (dense input), the part for h_t^{j-1}
  List<Packed<Mode>> past;       // of recurrent_products
  List<Recurrent<const F>> how;  // and what each of them is
  Room<F> table;  // (entries, P): what a row starts from, the bias, or the bias plus the column of W for each index
};

// All layers' weights for one direction, in one piece of memory and in the order of their use: what is fetched ahead of
// its use (gemm.h) is simply what comes next.
template <class Mode>
class PackedLayers {
  using F = typename Mode::Number;

 public:
  PackedLayers(const Forward<F>& f, Packing packing, const Parallel& parallel) : layers_(f.shape.L) {
    const Shape& s = f.shape;
    const bool forward = packing != BACKWARD;
    for (int64_t j = 0; j < s.L; j++) {
      PackedLayer<Mode>& layer = layers_[j];
      const Rows<const F> in = input_rows<const F>(s, f.layers[j], j);
      if (s.sees_x(j) && !s.indices) layer.x = describe(in, 0, s.I, forward);
      if (j > 0) layer.below = describe(in, s.x_width(j), s.H, forward);
      layer.how = recurrent_products<const F>(s, f.layers[j], j);
      for (const auto& product : layer.how) layer.past.push(describe(product.rows, 0, product.K, forward));
    }
    parallel(s.L, [&](int64_t j) {
      if (packing == FORWARD) layers_[j].table = start_table<Mode>(s, f.layers[j], j);
      if (packing == UNPACKED) layers_[j].table = start_rows<Mode>(s, f.layers[j], j, f.index);
    });
    if (packing != UNPACKED) pack(forward, parallel);
  }
  const PackedLayer<Mode>& operator[](int64_t j) const { return layers_[j]; }

 private:
  List<PackedLayer<Mode>> layers_;
  Room<typename Mode::Factor> memory_;

  static Packed<Mode> describe(const Rows<const F>& rows, int64_t offset, int64_t width, bool forward) {
    Packed<Mode> product;
    product.rows = rows;
    for (auto& row : product.rows) row += offset;
    product.K = forward ? width : rows.size();
    product.N = forward ? rows.size() : width;
    return product;
  }

  List<Packed<Mode>*> in_order_of_use(bool forward) {
    List<Packed<Mode>*> order;
    const int64_t L = layers_.size();
    for (int64_t i = 0; i < L; i++) {
      PackedLayer<Mode>& layer = layers_[forward ? i : L - 1 - i];
      if (forward) {
        order.push(&layer.x), order.push(&layer.below);
        for (auto& product : layer.past) order.push(&product);
      } else {
        for (int64_t p = layer.past.size(); p-- > 0;) order.push(&layer.past[p]);
        order.push(&layer.x), order.push(&layer.below);
      }
    }
    return order;
  }

  void pack(bool forward, const Parallel& parallel) {
    constexpr int NR = TILE_COLUMNS<F>;
    struct Panel {
      const Packed<Mode>* product;
      int64_t n0;
    };
    const List<Packed<Mode>*> order = in_order_of_use(forward);
    List<Panel> panels;
    int64_t size = 0;
    for (Packed<Mode>* product : order) size += packed_size<Mode>(product->K, product->N);
    memory_ = Room<typename Mode::Factor>(size);
    typename Mode::Factor* next = memory_.get();
    for (Packed<Mode>* product : order) {
      product->data = next;
      next += packed_size<Mode>(product->K, product->N);
      for (int64_t n = 0; n < product->N; n += NR) panels.push({product, n});
    }
    parallel(parallel.threads, [&](int64_t i) {
      const int64_t first = panels.size() * i / parallel.threads, last = panels.size() * (i + 1) / parallel.threads;
      for (int64_t p = first; p < last; p++) {
        const Packed<Mode>& w = *panels[p].product;
        const int64_t n0 = panels[p].n0;
        if (forward)
          pack_transposed<Mode>(w.rows.data(), w.N, w.K, n0, w.data + n0 * padded<Mode>(w.K));
        else
          pack_straight<Mode>(w.rows.data(), w.K, w.N, n0, w.data + n0 * padded<Mode>(w.K));
      }
    });
  }
};

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
