// One product of rounded factors by itself, as the softmax wants it: the matrix on the right is packed, the rows on the left
// are shared by the threads.
#pragma once
#include "packing.h"

namespace {

// Columns [m0, m0 + M) of a (K, columns) matrix, as M rows of K.
template <class F>
void columns_as_rows(const F* a, int64_t columns, int64_t K, int64_t m0, int64_t M, F* to) {
  constexpr int VL = Vec<F>::size;
  for_lanes<F>(M, [&](Lane<F> m) {
    for_lanes<F>(K, [&](Lane<F> k) {
      vec<F> square[VL];
#pragma GCC unroll 16
      for (int i = 0; i < VL; i++) square[i] = i < k.count ? m.get(a + (k.at + i) * columns + m0) : vec<F>{};
      transpose<F>(square);
      for (int i = 0; i < m.count; i++) k.put(to + (m.at + i) * K, square[i]);
    });
  });
}

template <class Mode, class F = typename Mode::Number>
void product(const gfrnn::Product& p, const Parallel& parallel) {
  constexpr int64_t NR = TILE_COLUMNS<F>, AT_A_TIME = 64;  // rows
  const int64_t M = p.M, N = p.N, K = p.K;
  Rows<const F> rows;
  plain_rows<const F>(p.b, p.b_columns ? N : K, p.b_columns ? K : N, rows);
  const Room<typename Mode::Factor> packed(packed_size<Mode>(K, N));
  const int64_t panels = (N + NR - 1) / NR;
  parallel(panels, [&](int64_t i) {
    typename Mode::Factor* panel = packed.get() + i * NR * padded<Mode>(K);
    if (p.b_columns)
      pack_transposed<Mode>(rows.data(), N, K, i * NR, panel);
    else
      pack_straight<Mode>(rows.data(), K, N, i * NR, panel);
  });
  Room<F> zeros(p.bias ? 0 : N);
  if (!p.bias) clear<F>(zeros.get(), N);
  parallel(parallel.threads, [&](int64_t i) {
    const int64_t last = M * (i + 1) / parallel.threads;
    const TileRegisters<Mode> registers;
    const auto room = factor_room<Mode>(AT_A_TIME, K);
    Room<F> turned(p.a_columns ? AT_A_TIME * K : 0);
    List<const F*> from(AT_A_TIME);
    List<F*> to(AT_A_TIME);
    for (int64_t m = M * i / parallel.threads; m < last; m += AT_A_TIME) {
      const int64_t count = smaller(AT_A_TIME, last - m);
      for (int64_t r = 0; r < count; r++) {
        from[r] = p.bias ? p.bias : zeros.get();
        to[r] = p.c + (m + r) * N;
      }
      if (p.a_columns) columns_as_rows<F>(p.a, M, K, m, count, turned.get());
      const auto factors = factor_rows<Mode>(p.a_columns ? turned.get() : p.a + m * K, K, count, K, room.get());
      multiply<Mode>(factors, count, packed.get(), K, N, from.data(), to.data(), 0, 0, 1);
    }
  });
}

}  // namespace
