// The factors of the weights' gradients (gradients.h), laid down as the tiles of gemm.h read them.
#pragma once
#include "packing.h"

namespace {

// What weights were multiplied with, b[k][n] of row k: panels [steps][TILE_COLUMNS][PER].
enum SourceKind { PAST, SCALED, BELOW, INPUT };

template <class Mode>
struct Source {
  using F = typename Mode::Number;
  SourceKind kind;
  int64_t at;  // PAST: the first column of h_{t-1}; SCALED, BELOW: the layer that hears it
  int64_t N;
  typename Mode::Factor* panels;
  // M rows from the k-th on, from rows that lie `stride` apart.
  void lay_down(int64_t K, int64_t k, int64_t M, const F* rows, int64_t stride) const {
    constexpr int NR = TILE_COLUMNS<F>, VL = Vec<F>::size;
    for (int64_t n = 0; n < N; n += NR) {
      const F* from = rows + n;
      const int rest = static_cast<int>(N - n);
      if constexpr (Mode::PER == 2) {
        auto row = [&](int64_t m) { return from + m * stride; };
        lay_pairs(panels + n * padded<Mode>(K), NR, K, k, M, smaller(rest, NR), row);
      } else {
        F* to = panels + n * K + k * NR;
        if (rest >= NR)
          for (int64_t m = 0; m < M; m++, to += NR, from += stride) {
            store<F>(to, Mode::values(load<F>(from)));
            store<F>(to + VL, Mode::values(load<F>(from + VL)));
          }
        else
          for (int64_t m = 0; m < M; m++, to += NR, from += stride) {
            store<F>(to, Mode::values(rest >= VL ? load<F>(from) : load_some<F>(from, rest)));
            store<F>(to + VL, Mode::values(rest > VL ? load_some<F>(from + VL, rest - VL) : vec<F>{}));
          }
      }
    }
  }
};

// A layer's deltas, a[k][m]: its columns in tiles, each [steps][rows][PER].
template <class Mode>
struct Deltas {
  using F = typename Mode::Number;
  using Factor = typename Mode::Factor;
  struct Tile {
    int64_t column;
    int rows;
  };
  List<Tile> tiles;
  Factor* data = nullptr;

  void add_columns(int64_t first, int64_t last) {
    if (first == last) return;
    const Tiles<Mode> split(last - first);
    for (int64_t i = 0; i < split.count; i++) tiles.push({first + split.begin(i), split.rows(i)});
  }
  int64_t tile_of(int64_t column) const {  // whose first column it is; the number of tiles at the end of the row
    int64_t i = 0;
    while (i < tiles.size() && tiles[i].column < column) i++;
    return i;
  }
  Factor* tile(int64_t K, int64_t i) const { return data + tiles[i].column * padded<Mode>(K); }
  void lay_down(int64_t K, int64_t k, int64_t M, const F* rows, int64_t stride) const {
    for (int64_t i = 0; i < tiles.size(); i++) {
      const int64_t count = tiles[i].rows;
      const F* from = rows + tiles[i].column;
      if constexpr (Mode::PER == 2) {
        lay_pairs(tile(K, i), count, K, k, M, count, [&](int64_t m) { return from + m * stride; });
      } else {
        F* to = tile(K, i) + k * count;
        for (int64_t m = 0; m < M; m++, to += count, from += stride)
          for_lanes<F>(count, [&](Lane<F> l) { l.put(to, Mode::values(l.get(from))); });
      }
    }
  }
};
}  // namespace
