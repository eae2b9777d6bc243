// Products of rounded factors by whole tiles: 16 rows and a register's width of sums, 32 terms at a time. AMX (tdpbf16ps), or,
// in a build for the tests of it (GFRNN_TILED), the same in plain C++.
#pragma once
#include "products.h"

namespace {

constexpr int SIDE = 16;                 // rows of a tile of sums
constexpr int WIDTH = Vec<float>::size;  // its columns
constexpr int64_t BLOCK = Tiled::BLOCK;  // terms of a sum, in one instruction
constexpr int64_t AT_ONCE = 16;          // blocks that are added up before their sum joins the others: see CHAIN in gemm.h
constexpr int64_t AHEAD = 2;             // blocks

// The tile registers belong to the thread. Their shapes are set while this exists; whoever else uses them (oneDNN keeps
// them set from call to call) finds its own again afterwards.
template <class Mode>
struct TileRegisters {
  TileRegisters() {}
};

#if defined(__AMX_BF16__)
struct alignas(64) TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};

template <>
struct TileRegisters<Tiled> {
  TileRegisters() {
    _tile_storeconfig(&before_);
    TileShapes ours = {};
    ours.palette = 1;
    for (int i = 0; i < 8; i++) ours.bytes[i] = 64, ours.rows[i] = SIDE;
    _tile_loadconfig(&ours);
  }
  ~TileRegisters() { _tile_loadconfig(&before_); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  TileShapes before_;
};
#endif

// Blocks [0, count) of ROWS tiles of a and COLUMNS of panels, which lie `next` factors apart for every two columns: added up in
// one chain each, and what they come to. A panel is called for two blocks ahead of its use.
#if defined(__AMX_BF16__)
template <int ROWS, int COLUMNS>
GFRNN_INLINE void sum_blocks(const Bits16* a, int64_t stride, const Bits16* panel, int64_t next, int64_t count,
                             float (&sums)[4][SIDE][WIDTH]) {
  constexpr int64_t ROW = 2 * WIDTH * 4, PANEL = BLOCK * 2 * WIDTH;  // bytes; factors in a block of a panel
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (ROWS * COLUMNS == 4) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < count; i++) {
    const Bits16 *rows = a + i * BLOCK, *left = panel + i * PANEL, *right = left + next;
    for (int64_t line = 0; line < PANEL; line += 32) {
      __builtin_prefetch(left + AHEAD * PANEL + line);
      if constexpr (COLUMNS == 4) __builtin_prefetch(right + AHEAD * PANEL + line);
    }
    _tile_loadd(4, rows, stride * 2);
    if constexpr (ROWS == 2) _tile_loadd(5, rows + SIDE * stride, stride * 2);
    _tile_loadd(6, left, ROW);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (ROWS == 2) _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(7, left + 2 * WIDTH, ROW);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (ROWS == 2) _tile_dpbf16ps(3, 5, 7);
    if constexpr (COLUMNS == 4) {
      _tile_loadd(6, right, ROW);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(7, right + 2 * WIDTH, ROW);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, sums[0], 4 * WIDTH);
  _tile_stored(1, sums[1], 4 * WIDTH);
  if constexpr (ROWS * COLUMNS == 4) {
    _tile_stored(2, sums[2], 4 * WIDTH);
    _tile_stored(3, sums[3], 4 * WIDTH);
  }
}
#else
template <int ROWS, int COLUMNS>
GFRNN_INLINE void sum_blocks(const Bits16* a, int64_t stride, const Bits16* panel, int64_t next, int64_t count,
                             float (&sums)[4][SIDE][WIDTH]) {
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    const int column = i % COLUMNS;
    const Bits16 *rows = a + i / COLUMNS * SIDE * stride, *b = panel + column / 2 * next + column % 2 * 2 * WIDTH;
    for (int m = 0; m < SIDE; m++) {
      vec<float> sum = {};
      for (int64_t k = 0; k < count * BLOCK; k += 2)
        sum = Pairs::add(sum, Pairs::spread(rows + m * stride + k), Pairs::fetch(b + k * 2 * WIDTH));
      store<float>(sums[i][m], sum);
    }
  }
}
#endif

// to[m][column + n] = from[m][column + n] + sum_k a[m * stride + k] B[k][n], for m < rows and n < width. Rows of a are read by
// the tile, whatever the last ones hold.
template <int ROWS, int COLUMNS>
__attribute__((noinline)) void tile_product(int rows, const Bits16* a, int64_t stride, const Bits16* panel, int64_t K,
                                            const float* const* from, float* const* to, int64_t column, int width) {
  alignas(64) float sums[4][SIDE][WIDTH];
  const int64_t blocks = padded<Tiled>(K) / BLOCK;
  if constexpr (ROWS == 2)  // a table's rows, activations, gradients: far away, and of few rows the products wait for the weights
    for (int m = 0; m < rows; m++)
      for (int n = 0; n < width; n += WIDTH) {
        __builtin_prefetch(from[m] + column + n);
        if (from != to) __builtin_prefetch(to[m] + column + n, 1);
      }
  for (int64_t i = 0; i < blocks; i += AT_ONCE) {
    sum_blocks<ROWS, COLUMNS>(a + i * BLOCK, stride, panel + i * BLOCK * 2 * WIDTH, padded<Tiled>(K) * 2 * WIDTH,
                              smaller(AT_ONCE, blocks - i), sums);
    for (int m = 0; m < rows; m++) {
      const float* p = (i ? to[m] : from[m]) + column;
      float* q = to[m] + column;
      const auto* sum = sums + m / SIDE * COLUMNS;
      for (int left = width; left > 0; left -= WIDTH, p += WIDTH, q += WIDTH, sum++) {
        const Lane<float> l{0, left < WIDTH ? left : WIDTH};
        l.put(q, l.get(p) + load<float>((*sum)[m % SIDE]));
      }
    }
  }
}

// The same for any M rows and N columns, of which a may have up to SIDE - 1 rows more that can be read.
__attribute__((unused)) void multiply_tiles(int64_t M, int64_t N, const Bits16* a, int64_t stride, const Bits16* panels, int64_t K,
                                            const float* const* from, float* const* to, int64_t column) {
  const int64_t wide = M > SIDE ? 2 * WIDTH : 4 * WIDTH;
  for (int64_t n = 0; n < N; n += wide) {
    const int width = static_cast<int>(smaller(N - n, wide));
    const Bits16* panel = panels + n * padded<Tiled>(K);
    for (int64_t m = 0; m < M; m += 2 * SIDE) {
      const int rows = static_cast<int>(smaller(M - m, 2 * SIDE));
      const auto product = rows > SIDE           ? tile_product<2, 2>
                           : width > 2 * WIDTH ? tile_product<1, 4>
                                               : tile_product<1, 2>;
      product(rows, a + m * stride, stride, panel, K, from + m, to + m, column + n, width);
    }
  }
}

// K rows of `count` columns in pairs, a tile of deltas (factors.h), become columns of K terms: 16 of them at most.
__attribute__((unused)) void turn(const Bits16* tile, int64_t count, int64_t K, Bits16* columns) {
  const int64_t pairs = padded<Tiled>(K) / 2;
  const float* from = reinterpret_cast<const float*>(tile);  // words, whatever they hold
  float* to = reinterpret_cast<float*>(columns);
  for (int64_t m = 0; m < count; m += WIDTH) {
    const int some = static_cast<int>(smaller(WIDTH, count - m));
    for (int64_t step = 0; step < pairs; step += WIDTH) {
      vec<float> square[WIDTH];
#pragma GCC unroll 16
      for (int i = 0; i < WIDTH; i++) square[i] = load_some<float>(from + (step + i) * count + m, some);
      transpose<float>(square);
#pragma GCC unroll 16
      for (int i = 0; i < WIDTH; i++) store<float>(to + (m + i) * pairs + step, square[i]);
    }
  }
}

}  // namespace
