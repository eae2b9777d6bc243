// The factors of a matrix product: how they are stored, and how they are multiplied. A `Mode` is Exact<float>,
// Exact<double>, or Bfloat16: factors rounded to bfloat16 (nearest, ties to even, NaN stays), sums in float.
//
// Bfloat16 has three forms. Where the CPU multiplies pairs of bfloat16 numbers (vdpbf16ps), and in the generic kernels, which
// thereby test it, factors are stored in 16 bits, two neighbouring terms of the sum (k, k + 1) side by side. Where it
// multiplies whole tiles of them (AMX: tiles.h), sums have a multiple of 32 terms besides. Elsewhere they are stored as
// floats, and every float product is then as fast as ever.
#pragma once
#include "memory.h"
#include "vec.h"

namespace {

template <class F>
struct Exact {
  using Number = F;
  using Factor = F;  // as stored
  using Register = vec<F>;
  static constexpr int64_t PER = 1;           // terms of the sum that lie side by side
  static constexpr int64_t BLOCK = 1;         // terms that a product takes at once: sums are filled up with zeros
  static constexpr bool TILED = false;        // by the instructions of tiles.h
  static constexpr bool AS_THEY_LIE = true;   // numbers are factors already
  static GFRNN_INLINE F value(F x) { return x; }
  static GFRNN_INLINE vec<F> values(vec<F> x) { return x; }
  static GFRNN_INLINE void put(F* to, F x) { *to = x; }
  static GFRNN_INLINE Register fetch(const F* p) { return load<F>(p); }
  static GFRNN_INLINE Register spread(const F* p) { return broadcast<F>(*p); }
  static GFRNN_INLINE vec<F> add(vec<F> sum, Register a, Register b) { return sum + a * b; }
};

typedef uint32_t words __attribute__((vector_size(GFRNN_REGISTER_BYTES)));
typedef uint16_t half_words __attribute__((vector_size(GFRNN_REGISTER_BYTES / 2)));
typedef words unaligned_words __attribute__((aligned(2), may_alias));

// The upper 16 bits are the number in bfloat16, the lower ones 0.
GFRNN_INLINE words rounded_bits(vec<float> x) {
  const words bits = reinterpret_cast<words>(x);
  const words nearest = bits + 0x7fff + ((bits >> 16) & 1);
  const words no_number = bits | 0x400000;  // a NaN whose upper bits are 0 would become an infinity
  return reinterpret_cast<words>(x == x ? reinterpret_cast<vec<float>>(nearest) : reinterpret_cast<vec<float>>(no_number)) &
         0xffff0000u;
}

GFRNN_INLINE uint32_t rounded_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return (x == x ? bits + 0x7fff + ((bits >> 16) & 1) : bits | 0x400000) & 0xffff0000u;
}

struct Rounding {
  using Number = float;
  static constexpr bool AS_THEY_LIE = false, TILED = false;
  static GFRNN_INLINE float value(float x) {
    const uint32_t bits = rounded_bits(x);
    std::memcpy(&x, &bits, 4);
    return x;
  }
  static GFRNN_INLINE vec<float> values(vec<float> x) { return reinterpret_cast<vec<float>>(rounded_bits(x)); }
};

struct RoundedFloats : Rounding {
  using Factor = float;
  using Register = vec<float>;
  static constexpr int64_t PER = 1, BLOCK = 1;
  static GFRNN_INLINE void put(float* to, float x) { *to = value(x); }
  static GFRNN_INLINE Register fetch(const float* p) { return load<float>(p); }
  static GFRNN_INLINE Register spread(const float* p) { return broadcast<float>(*p); }
  static GFRNN_INLINE vec<float> add(vec<float> sum, Register a, Register b) { return sum + a * b; }
};

struct Bits16 {
  uint16_t bits;
};

GFRNN_INLINE vec<float> even_terms(words pairs) { return reinterpret_cast<vec<float>>(pairs << 16); }
GFRNN_INLINE vec<float> odd_terms(words pairs) { return reinterpret_cast<vec<float>>(pairs & 0xffff0000u); }

// sum + a_even b_even + a_odd b_odd. The only place that knows the instruction.
GFRNN_INLINE vec<float> dot_pairs(vec<float> sum, words a, words b) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<vec<float>>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(a),
                                                       reinterpret_cast<__m512bh>(b)));
#else
  sum += even_terms(a) * even_terms(b);
  return sum + odd_terms(a) * odd_terms(b);
#endif
}

struct Pairs : Rounding {
  using Factor = Bits16;
  using Register = words;
  static constexpr int64_t PER = 2, BLOCK = 2;
  static GFRNN_INLINE void put(Bits16* to, float x) { *to = {static_cast<uint16_t>(rounded_bits(x) >> 16)}; }
  static GFRNN_INLINE Register fetch(const Bits16* p) { return *reinterpret_cast<const unaligned_words*>(p); }
  static GFRNN_INLINE Register spread(const Bits16* p) {
    uint32_t pair;
    std::memcpy(&pair, p, 4);
    return words{} + pair;
  }
  static GFRNN_INLINE vec<float> add(vec<float> sum, Register a, Register b) { return dot_pairs(sum, a, b); }
};

struct Tiled : Pairs {
  static constexpr int64_t BLOCK = 32;
  static constexpr bool TILED = true;
};

#if defined(__AMX_BF16__) || defined(GFRNN_TILED)
using Bfloat16 = Tiled;
#elif (defined(__AVX512BF16__) || !defined(__AVX2__)) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
using Bfloat16 = Pairs;
#else
using Bfloat16 = RoundedFloats;
#endif

// The K terms of a sum with what is needed to fill the last block.
template <class Mode>
constexpr int64_t padded(int64_t K) {
  return (K + Mode::BLOCK - 1) / Mode::BLOCK * Mode::BLOCK;
}

template <class Mode>
constexpr int64_t steps(int64_t K) {
  return padded<Mode>(K) / Mode::PER;
}

// Where the factor of term k and column n lies in a panel [steps][width][PER].
template <class Mode>
GFRNN_INLINE int64_t place(int64_t k, int64_t n, int64_t width) {
  return (k / Mode::PER * width + n) * Mode::PER + k % Mode::PER;
}

// Zeros for what a panel has beyond the K terms; of an odd K the last pair is complete already.
template <class Mode>
void fill_up(typename Mode::Factor* panel, int64_t width, int64_t K) {
  const int64_t done = round_up(K, Mode::PER);
  clear<typename Mode::Factor>(panel + done * width, (padded<Mode>(K) - done) * width);
}

// Two terms of a sum, of as many columns as a register has words.
GFRNN_INLINE vec<float> in_pairs(vec<float> even, vec<float> odd) {
#if defined(__AVX512BF16__)  // takes subnormal numbers for 0, as the products do
  const __m512i both = reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(odd), reinterpret_cast<__m512>(even)));
  const __m512i order = reinterpret_cast<__m512i>(words{0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005,
                                                        0x160006, 0x170007, 0x180008, 0x190009, 0x1a000a, 0x1b000b,
                                                        0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f});
  return reinterpret_cast<vec<float>>(_mm512_permutexvar_epi16(order, both));
#else
  return reinterpret_cast<vec<float>>(rounded_bits(even) >> 16 | rounded_bits(odd));
#endif
}

// As many numbers as a register has words, rounded, one after the other.
GFRNN_INLINE half_words in_line(vec<float> x) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<half_words>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x)));
#else
  return __builtin_convertvector(rounded_bits(x) >> 16, half_words);
#endif
}

// Row k of K alone, into its halves of the words: the other halves may be another thread's.
inline void lay_half(Bits16* panel, int64_t width, int64_t K, int64_t k, int64_t count, const float* row) {
  for (int64_t n = 0; n < width; n++) {
    Bits16* to = panel + place<Pairs>(k, n, width);
    Pairs::put(to, n < count ? row[n] : 0.0f);
    if (k % 2 == 0 && k + 1 == K) to[1] = {0};
  }
}

// Rows [k, k + M) of K, row(m) each, into a panel of `width` columns: `count` numbers, then zeros.
template <class Row>
void lay_pairs(Bits16* panel, int64_t width, int64_t K, int64_t k, int64_t M, int64_t count, const Row& row) {
  int64_t m = 0;
  if (k % 2 && M > 0) lay_half(panel, width, K, k, count, row(m++));
  for (; m + 1 < M; m += 2) {
    float* to = reinterpret_cast<float*>(panel + place<Pairs>(k + m, 0, width));
    const float *even = row(m), *odd = row(m + 1);
    for_lanes<float>(count, [&](Lane<float> l) { l.put(to, in_pairs(l.get(even), l.get(odd))); });
    clear<float>(to + count, width - count);
  }
  if (m < M) lay_half(panel, width, K, k + m, count, row(m));
}

// The deltas of row k in a tile [steps][rows][PER], as numbers.
template <class Mode>
GFRNN_INLINE vec<typename Mode::Number> values_at(Lane<typename Mode::Number> l, const typename Mode::Factor* tile,
                                                  int64_t rows, int64_t k) {
  if constexpr (Mode::PER == 1) {
    return l.get(tile + k * rows);
  } else {
    const words pairs = reinterpret_cast<words>(l.get(reinterpret_cast<const float*>(tile) + k / 2 * rows));
    return odd_terms(pairs << (k % 2 ? 0 : 16));  // no branch: k may be any
  }
}

// Rows of numbers, as a product reads them: where they lie, or rounded into `room`, which has padded(K) for each row.
template <class Mode>
struct FactorRows {
  const typename Mode::Factor* data;
  int64_t stride;
};

template <class Mode>
FactorRows<Mode> factor_rows(const typename Mode::Number* a, int64_t stride, int64_t M, int64_t K,
                             typename Mode::Factor* room) {
  if constexpr (Mode::AS_THEY_LIE) {
    return {a, stride};
  } else {
    const int64_t width = padded<Mode>(K);
    for (int64_t m = 0; m < M; m++) {
      const float* from = a + m * stride;
      typename Mode::Factor* to = room + m * width;
      if constexpr (Mode::PER == 1) {
        for_lanes<float>(K, [&](Lane<float> l) { l.put(to, Mode::values(l.get(from))); });
      } else {
        constexpr int VL = Vec<float>::size;
        int64_t k = 0;
        for (; k + VL <= K; k += VL) {
          const half_words halves = in_line(load<float>(from + k));
          std::memcpy(to + k, &halves, sizeof(halves));
        }
        if (k < K) {
          const half_words halves = in_line(load_some<float>(from + k, static_cast<int>(K - k)));
          std::memcpy(to + k, &halves, static_cast<size_t>(K - k) * sizeof(Bits16));
        }
        clear<typename Mode::Factor>(to + K, width - K);
      }
    }
    return {room, width};
  }
}

}  // namespace
