// The two matrix products everything is made of, over one micro-kernel.
//
//   C[m] = D[m] + A[m] B             weights B packed once per call, rows of A as they lie: the timestep (`multiply`)
//   C[m] += sum_k A[k][m] B[k]       both packed as they are computed: the weights' gradients (gradients.h)
//
// Weights reach us as arrays of row pointers, so that any selection or order of rows is one product, and results leave
// through row pointers for the same reason. Each element of C is a sum of chains of fused multiply-adds in the order of
// k, however rows are split over tiles or threads: the number of threads never changes a bit.
#pragma once
#include "tiles.h"

namespace {

constexpr int TILE_ROWS = GFRNN_TILE_ROWS;
// Terms added up before the sum joins the others: rounding errors grow with a chain's length, not with K.
constexpr int64_t CHAIN = 256;
template <class F>
constexpr int TILE_COLUMNS = 2 * Vec<F>::size;

// Columns in panels of TILE_COLUMNS, each panel [steps][TILE_COLUMNS][PER]; the last one is filled with zeros.
template <class Mode>
int64_t packed_size(int64_t K, int64_t N) {
  return padded<Mode>(K) * round_up(N, TILE_COLUMNS<typename Mode::Number>);
}

// `terms` of them, from k on, of a register's columns of the panel below, those from n on. TERMS: as many, if known.
template <class Mode, int TERMS, class F = typename Mode::Number>
GFRNN_INLINE void pack_square(const F* const* rows, int64_t N, int64_t k, int terms, typename Mode::Factor* panel, int64_t n) {
  constexpr int VL = Vec<F>::size, NR = TILE_COLUMNS<F>;
  const int count = TERMS ? TERMS : terms;
  vec<F> square[VL];
#pragma GCC unroll 16
  for (int i = 0; i < VL; i++) square[i] = i >= N ? vec<F>{} : TERMS ? load<F>(rows[i] + k) : load_some<F>(rows[i] + k, count);
  transpose<F>(square);
#pragma GCC unroll 16
  for (int i = 0; i < count; i += Mode::PER) {
    typename Mode::Factor* to = panel + place<Mode>(k + i, n, NR);
    if constexpr (Mode::PER == 2)
      store<float>(reinterpret_cast<float*>(to), in_pairs(square[i], square[i + 1]));  // beyond the last term: zeros
    else
      store<F>(to, Mode::values(square[i]));
  }
}

// The panel of columns [n0, n0 + TILE_COLUMNS) of B[k][n] = rows[n][k]: the forward's W x, weights stored (outputs, inputs).
template <class Mode, class F = typename Mode::Number>
void pack_transposed(const F* const* rows, int64_t N, int64_t K, int64_t n0, typename Mode::Factor* panel) {
  constexpr int VL = Vec<F>::size;
  for (int64_t n = 0; n < TILE_COLUMNS<F>; n += VL) {
    const int64_t there = N - n0 - n;  // columns, if fewer than a register's; none if negative
    const F* const* from = rows + n0 + n;
    int64_t k = 0;
    for (; k + VL <= K; k += VL) pack_square<Mode, VL>(from, there, k, VL, panel, n);
    if (k < K) pack_square<Mode, 0>(from, there, k, static_cast<int>(K - k), panel, n);
  }
  fill_up<Mode>(panel, TILE_COLUMNS<F>, K);
}

// The same panel of B[k][n] = rows[k][n]: the backward's d W.
template <class Mode, class F = typename Mode::Number>
void pack_straight(const F* const* rows, int64_t K, int64_t N, int64_t n0, typename Mode::Factor* panel) {
  constexpr int NR = TILE_COLUMNS<F>;
  const int64_t count = smaller(NR, N - n0);
  if constexpr (Mode::PER == 2) {
    lay_pairs(panel, NR, K, 0, K, count, [&](int64_t k) { return rows[k] + n0; });
    fill_up<Mode>(panel, NR, K);
  } else {
    for (int64_t k = 0; k < K; k++) {
      for_lanes<F>(count, [&](Lane<F> l) { l.put(panel + k * NR, Mode::values(l.get(rows[k] + n0))); });
      clear<F>(panel + k * NR + count, NR - count);
    }
  }
}

// Weights do not fit the second cache: while one panel is multiplied, the next is fetched into it, in two streams of
// which each tile of the panel fetches its part.
template <class Mode>
struct Ahead {
  using Factor = typename Mode::Factor;
  const Factor *first, *second;
  int64_t stride;  // per step
  // The stride of each of so many tiles of a panel.
  static int64_t share(int64_t tiles) {
    return (Vec<typename Mode::Number>::size + tiles - 1) / larger(tiles, 1) * Mode::PER;
  }
  // Tile i of a panel for K terms, which the next panel follows in memory.
  static Ahead after(const Factor* panel, int64_t K, int64_t i, int64_t stride) {
    const int64_t half = padded<Mode>(K) * Vec<typename Mode::Number>::size;
    const Factor* next = panel + 2 * half + i * steps<Mode>(K) * stride;
    return {next, next + half, stride};
  }
};

// Numbers wanted once a product is done, which lie in memory by now: each of its tiles fetches some of them into the second
// cache, so that memory works while the product is computed.
class Errands {
 public:
  void forget() {
    ranges_.empty_out();
    next_ = 0;
  }
  template <class F>
  void add(const F* numbers, int64_t n) {
    ranges_.push({reinterpret_cast<const char*>(numbers), reinterpret_cast<const char*>(numbers + n)});
  }
  void some() {
    for (int lines = 24; lines > 0 && next_ < ranges_.size(); lines--) {
      Range& range = ranges_[next_];
      __builtin_prefetch(range.at, 0, 2);
      range.at += 64;
      if (range.at >= range.end) next_++;
    }
  }

 private:
  struct Range {
    const char *at, *end;
  };
  List<Range> ranges_;
  int64_t next_ = 0;
};

// A tile of C in registers: MR rows by NV vectors. A is either rows (stride lda) or packed [steps][MR][PER].
template <class Mode, int MR, int NV, bool PACKED_A, class F = typename Mode::Number>
GFRNN_INLINE void accumulate(vec<F> (&tile)[MR][NV], const typename Mode::Factor* a, int64_t lda,
                             const typename Mode::Factor* b, int64_t count, Ahead<Mode>& ahead) {
  constexpr int64_t PER = Mode::PER;
  for (int64_t step = 0; step < count; step++) {
    __builtin_prefetch(ahead.first, 0, 2);
    __builtin_prefetch(ahead.second, 0, 2);
    ahead.first += ahead.stride;
    ahead.second += ahead.stride;
    typename Mode::Register row[NV];
#pragma GCC unroll 2
    for (int v = 0; v < NV; v++) row[v] = Mode::fetch(b + v * Vec<F>::size * PER);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      const typename Mode::Register x = Mode::spread(PACKED_A ? a + i * PER : a + i * lda);
#pragma GCC unroll 2
      for (int v = 0; v < NV; v++) tile[i][v] = Mode::add(tile[i][v], x, row[v]);
    }
    a += (PACKED_A ? MR : 1) * PER;
    b += TILE_COLUMNS<F> * PER;
  }
}

template <class Mode, int MR, int NV, bool PACKED_A, bool WHOLE, class F = typename Mode::Number>
__attribute__((noinline)) void tile(const typename Mode::Factor* a, int64_t lda, const typename Mode::Factor* b,
                                    int64_t K, const F* const* from, F* const* to, int64_t column, int tail,
                                    const Ahead<Mode>& next) {
  constexpr int VL = Vec<F>::size, LAST = NV - 1;  // tail: elements of the last vector, VL if WHOLE
  Ahead<Mode> ahead{next.first, next.second, next.stride};
  vec<F> sums[MR][NV];
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
    const F* p = from[i] + column;
    if constexpr (NV == 2) sums[i][0] = load<F>(p);
    sums[i][LAST] = WHOLE ? load<F>(p + LAST * VL) : load_some<F>(p + LAST * VL, tail);
  }
  for (int64_t k = 0; k < K; k += CHAIN) {
    vec<F> part[MR][NV] = {};
    const typename Mode::Factor *a_k = a + k * (PACKED_A ? MR : 1), *b_k = b + k * TILE_COLUMNS<F>;
    accumulate<Mode, MR, NV, PACKED_A>(part, a_k, lda, b_k, steps<Mode>(smaller(CHAIN, K - k)), ahead);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
      for (int v = 0; v < NV; v++) sums[i][v] += part[i][v];
  }
#pragma GCC unroll 16
  for (int i = 0; i < MR; i++) {
    F* p = to[i] + column;
    if constexpr (NV == 2) store<F>(p, sums[i][0]);
    if constexpr (WHOLE)
      store<F>(p + LAST * VL, sums[i][LAST]);
    else
      store_some<F>(p + LAST * VL, sums[i][LAST], tail);
  }
}

template <class Mode, int MR, bool PACKED_A, class F = typename Mode::Number>
void tile_any_width(const typename Mode::Factor* a, int64_t lda, const typename Mode::Factor* b, int64_t K,
                    const F* const* from, F* const* to, int64_t column, int width, const Ahead<Mode>& ahead) {
  constexpr int VL = Vec<F>::size;
  if (width == 2 * VL)
    tile<Mode, MR, 2, PACKED_A, true>(a, lda, b, K, from, to, column, VL, ahead);
  else if (width > VL)
    tile<Mode, MR, 2, PACKED_A, false>(a, lda, b, K, from, to, column, width - VL, ahead);
  else
    tile<Mode, MR, 1, PACKED_A, false>(a, lda, b, K, from, to, column, width, ahead);
}

// mr rows, 1 <= mr <= TILE_ROWS, chosen at run time.
template <class Mode, bool PACKED_A, int MR = TILE_ROWS, class F = typename Mode::Number>
GFRNN_INLINE void tile_rows(int mr, const typename Mode::Factor* a, int64_t lda, const typename Mode::Factor* b,
                            int64_t K, const F* const* from, F* const* to, int64_t column, int width,
                            const Ahead<Mode>& ahead) {
  if constexpr (MR == 1) {
    tile_any_width<Mode, 1, PACKED_A>(a, lda, b, K, from, to, column, width, ahead);
  } else {
    if (mr == MR)
      tile_any_width<Mode, MR, PACKED_A>(a, lda, b, K, from, to, column, width, ahead);
    else
      tile_rows<Mode, PACKED_A, MR - 1>(mr, a, lda, b, K, from, to, column, width, ahead);
  }
}

// Splits M rows into tiles as equal as possible: 50 rows are 13 + 13 + 12 + 12, not 14 + 14 + 14 + 8.
template <class Mode>
struct Tiles {
  static constexpr int64_t MOST = Mode::TILED ? SIDE : TILE_ROWS;
  int64_t count, each, larger_ones;
  explicit Tiles(int64_t rows) : count((rows + MOST - 1) / MOST), each(rows / larger(count, 1)), larger_ones(rows - each * count) {}
  int64_t begin(int64_t i) const { return i * each + smaller(i, larger_ones); }
  int rows(int64_t i) const { return static_cast<int>(each + (i < larger_ones)); }
};

// A product that starts from other rows than it writes to (a table, and the activations of a new timestep) finds both far
// away: they are called for while the tile before them is multiplied.
template <class F>
GFRNN_INLINE void call_for(const F* const* from, F* const* to, int rows, int64_t column) {
  constexpr int64_t LAST = TILE_COLUMNS<F> - 1, MIDDLE = Vec<F>::size;
  for (int i = 0; i < rows; i++) {
    const F *p = from[i] + column, *q = to[i] + column;
    __builtin_prefetch(p), __builtin_prefetch(p + MIDDLE), __builtin_prefetch(p + LAST);
    __builtin_prefetch(q, 1), __builtin_prefetch(q + MIDDLE, 1), __builtin_prefetch(q + LAST, 1);
  }
}

// to[m][column + n] = from[m][column + n] + sum_k a[m * lda + k] B[k][n], for m < M and the columns n of part `part`
// of `parts` of the N columns.
template <class Mode, class F = typename Mode::Number>
void multiply(FactorRows<Mode> a, int64_t M, const typename Mode::Factor* packed, int64_t K, int64_t N,
              const F* const* from, F* const* to, int64_t column, int64_t part, int64_t parts, Errands* errands = nullptr) {
  if (M == 0) return;
  constexpr int NR = TILE_COLUMNS<F>;
  const Tiles<Mode> tiles(M);
  const int64_t panels = (N + NR - 1) / NR, begin = panels * part / parts * NR, end = smaller(panels * (part + 1) / parts * NR, N);
  if constexpr (Mode::TILED) {
    return multiply_tiles(M, end - begin, a.data, a.stride, packed + begin * padded<Mode>(K), K, from, to, column + begin);
  }
  const int64_t share = Ahead<Mode>::share(tiles.count);
  for (int64_t n = begin; n < end; n += NR) {
    const int width = static_cast<int>(smaller(N - n, NR));
    const typename Mode::Factor* panel = packed + n * padded<Mode>(K);
    for (int64_t i = 0; i < tiles.count; i++) {
      const int64_t m = tiles.begin(i);
      const bool last = i + 1 == tiles.count;
      if (errands) errands->some();
      const int64_t next = last ? 0 : tiles.begin(i + 1);
      if (from != to) call_for<F>(from + next, to + next, tiles.rows(last ? 0 : i + 1), column + n + (last ? NR : 0));
      tile_rows<Mode, false>(tiles.rows(i), a.data + m * a.stride, a.stride, panel, K, from + m, to + m, column + n,
                             width, Ahead<Mode>::after(panel, K, i, share));
    }
  }
}

// The same product with rows[n][k] = B[k][n] as they lie in the weights, not packed: for so few rows of A that packing
// would cost more than multiplying. Four rows of weights at a time.
template <class Mode, class F = typename Mode::Number>
void multiply_unpacked(const F* a, int64_t lda, int64_t M, const F* const* rows, int64_t K, int64_t N,
                       const F* const* from, F* const* to, int64_t column, int64_t part, int64_t parts) {
  constexpr int64_t GROUP = 4;
  const int64_t groups = (N + GROUP - 1) / GROUP, end = smaller(groups * (part + 1) / parts * GROUP, N);
  for (int64_t n = groups * part / parts * GROUP; n < end; n += GROUP) {
    const F* w[GROUP];
    for (int64_t i = 0; i < GROUP; i++) w[i] = rows[smaller(n + i, N - 1)];
    for (int64_t m = 0; m < M; m++) {
      vec<F> sums[GROUP] = {};
      for_lanes<F>(K, [&](Lane<F> l) {
        const vec<F> x = Mode::values(l.get(a + m * lda));
        for (int64_t i = 0; i < GROUP; i++) sums[i] += x * Mode::values(l.get(w[i]));
      });
      for (int64_t i = 0; i < smaller(GROUP, N - n); i++)
        to[m][column + n + i] = from[m][column + n + i] + sum<F>(sums[i]);
    }
  }
}

}  // namespace
