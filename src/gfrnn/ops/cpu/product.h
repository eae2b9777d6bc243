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

// Long sums are added up block by block, of so many terms that the matrix on the right stays in the second cache while all
// rows on the left pass by. A multiple of every chain (gemm.h, tiles.h): the bits are those of one block.
constexpr int64_t TERMS = 1024;

template <class Mode, class F = typename Mode::Number>
void product(const gfrnn::Product& p, const Parallel& parallel) {
  constexpr int64_t NR = TILE_COLUMNS<F>, AT_A_TIME = 64;  // rows
  const int64_t M = p.M, N = p.N, K = p.K;
  const int64_t panels = (N + NR - 1) / NR, blocks = (K + TERMS - 1) / TERMS, block_size = packed_size<Mode>(smaller(K, TERMS), N);
  Rows<const F> rows;
  plain_rows<const F>(p.b, p.b_columns ? N : K, p.b_columns ? K : N, rows);
  const Room<typename Mode::Factor> packed(blocks * block_size);
  parallel(panels * blocks, [&](int64_t i) {
    const int64_t block = i / panels, n0 = i % panels * NR, k0 = block * TERMS, terms = smaller(TERMS, K - k0);
    typename Mode::Factor* panel = packed.get() + block * block_size + n0 * padded<Mode>(terms);
    if (!p.b_columns) return pack_straight<Mode>(rows.data() + k0, terms, N, n0, panel);
    const int64_t count = smaller(NR, N - n0);
    const F* columns[NR];
    for (int64_t n = 0; n < count; n++) columns[n] = rows[n0 + n] + k0;
    pack_transposed<Mode>(columns, count, terms, 0, panel);
  });
  Room<F> zeros(p.bias ? 0 : N);
  if (!p.bias) clear<F>(zeros.get(), N);
  parallel(parallel.threads, [&](int64_t i) {
    const int64_t last = M * (i + 1) / parallel.threads;
    const TileRegisters<Mode> registers;
    const auto room = factor_room<Mode>(AT_A_TIME, smaller(K, TERMS));
    Room<F> turned(p.a_columns ? AT_A_TIME * smaller(K, TERMS) : 0);
    List<const F*> from(AT_A_TIME);
    List<F*> to(AT_A_TIME);
    for (int64_t block = 0; block < blocks; block++) {
      const int64_t k0 = block * TERMS, terms = smaller(TERMS, K - k0);
      for (int64_t m = M * i / parallel.threads; m < last; m += AT_A_TIME) {
        const int64_t count = smaller(AT_A_TIME, last - m);
        for (int64_t r = 0; r < count; r++) {
          to[r] = p.c + (m + r) * N;
          from[r] = block ? to[r] : p.bias ? p.bias : zeros.get();
        }
        if (p.a_columns) columns_as_rows<F>(p.a + k0 * M, M, terms, m, count, turned.get());
        const F* a = p.a_columns ? turned.get() : p.a + m * K + k0;
        const auto factors = factor_rows<Mode>(a, p.a_columns ? terms : K, count, terms, room.get());
        multiply<Mode>(factors, count, packed.get() + block * block_size, terms, N, from.data(), to.data(), 0, 0, 1);
      }
    }
  });
}

}  // namespace
