// The instructions of AMX that tiles.h uses, in plain C++, so that its code for them runs on any CPU. Included before it, with
// __AMX_BF16__ defined. Tiles that are used before their shapes are set, or in another shape than ours, end the process.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace amx {

constexpr int ROWS = 16, BYTES = 64;

struct Shapes {  // as ldtilecfg reads them
  uint8_t palette, start_row, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
};

inline Shapes shapes = {};
inline uint8_t tiles[8][ROWS][BYTES];

inline uint8_t (&usable(int tile))[ROWS][BYTES] {
  if (shapes.palette != 1 || shapes.rows[tile] != ROWS || shapes.bytes[tile] != BYTES) std::abort();
  return tiles[tile];
}

inline void load(int tile, const void* from, int64_t stride) {
  for (int m = 0; m < ROWS; m++) std::memcpy(usable(tile)[m], static_cast<const char*>(from) + m * stride, BYTES);
}

inline void store(int tile, void* to, int64_t stride) {
  for (int m = 0; m < ROWS; m++) std::memcpy(static_cast<char*>(to) + m * stride, usable(tile)[m], BYTES);
}

inline float number(const uint8_t* halves, int i) {
  uint32_t bits = 0;
  std::memcpy(reinterpret_cast<char*>(&bits) + 2, halves + 2 * i, 2);
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// Row m of the sums, column n: plus the pairs of row m of a by those of column n of b, whose row k holds the pairs k.
inline void multiply(int sums, int a, int b) {
  for (int m = 0; m < ROWS; m++)
    for (int k = 0; k < BYTES / 4; k++)
      for (int n = 0; n < BYTES / 4; n++) {
        float sum;
        std::memcpy(&sum, usable(sums)[m] + 4 * n, 4);
        for (int half = 0; half < 2; half++)
          sum += number(usable(a)[m], 2 * k + half) * number(usable(b)[k], 2 * n + half);
        std::memcpy(usable(sums)[m] + 4 * n, &sum, 4);
      }
}

}  // namespace amx

inline void _tile_storeconfig(void* to) { std::memcpy(to, &amx::shapes, sizeof amx::shapes); }
inline void _tile_loadconfig(const void* from) {
  std::memcpy(&amx::shapes, from, sizeof amx::shapes);
  std::memset(amx::tiles, 0, sizeof amx::tiles);
}
inline void _tile_zero(int tile) { std::memset(amx::usable(tile), 0, sizeof amx::tiles[0]); }
inline void _tile_loadd(int tile, const void* from, int64_t stride) { amx::load(tile, from, stride); }
inline void _tile_stream_loadd(int tile, const void* from, int64_t stride) { amx::load(tile, from, stride); }
inline void _tile_stored(int tile, void* to, int64_t stride) { amx::store(tile, to, stride); }
inline void _tile_dpbf16ps(int sums, int a, int b) { amx::multiply(sums, a, b); }
