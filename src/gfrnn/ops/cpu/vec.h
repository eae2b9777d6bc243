// Vectors of one register, and the three functions the units need. Compiled once per instruction set (GFRNN_ISA).
//
// GCC/Clang vector types: +, -, *, / and comparisons work element by element, a scalar operand is broadcast.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#if defined(GFRNN_REGISTER_BYTES)  // a test's choice: registers as the compiler puts them together
#define GFRNN_TILE_ROWS 4
#elif defined(__AVX512F__)
#define GFRNN_REGISTER_BYTES 64
#define GFRNN_TILE_ROWS 14  // 14 x 2 accumulators + 2 operands + 1 broadcast of 32 registers
#elif defined(__AVX2__)
#define GFRNN_REGISTER_BYTES 32
#define GFRNN_TILE_ROWS 6  // 6 x 2 accumulators + 2 operands + 1 broadcast of 16 registers
#else
#define GFRNN_REGISTER_BYTES 16
#define GFRNN_TILE_ROWS 4
#endif
#define GFRNN_INLINE inline __attribute__((always_inline))

namespace {

template <class F>
struct Vec;

template <>
struct Vec<float> {
  static constexpr int size = GFRNN_REGISTER_BYTES / 4;
  typedef float type __attribute__((vector_size(GFRNN_REGISTER_BYTES)));
  typedef int32_t ints __attribute__((vector_size(GFRNN_REGISTER_BYTES)));
  typedef type unaligned __attribute__((aligned(4), may_alias));
};

template <>
struct Vec<double> {
  static constexpr int size = GFRNN_REGISTER_BYTES / 8;
  typedef double type __attribute__((vector_size(GFRNN_REGISTER_BYTES)));
  typedef int64_t ints __attribute__((vector_size(GFRNN_REGISTER_BYTES)));
  typedef type unaligned __attribute__((aligned(8), may_alias));
};

template <class F>
using vec = typename Vec<F>::type;

template <class F>
GFRNN_INLINE vec<F> load(const F* p) {
  return *reinterpret_cast<const typename Vec<F>::unaligned*>(p);
}

template <class F>
GFRNN_INLINE void store(F* p, vec<F> v) {
  *reinterpret_cast<typename Vec<F>::unaligned*>(p) = v;
}

// x - 0 is x for every x, so this is one instruction; x + 0 would be an addition, as it turns -0 into 0.
template <class F>
GFRNN_INLINE vec<F> broadcast(F x) {
  return x - vec<F>{};
}

#if defined(__AVX2__) && !defined(__AVX512F__)
template <class F>
GFRNN_INLINE __m256i first_lanes(int n) {
  if constexpr (sizeof(F) == 4)
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  else
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
#endif

// The last vector of a row, which may be incomplete: n <= Vec::size elements, the rest 0. With masks where there are any.
template <class F>
GFRNN_INLINE vec<F> load_some(const F* p, int n) {
#if defined(__AVX512F__)
  if constexpr (sizeof(F) == 4)
    return reinterpret_cast<vec<F>>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p));
  else
    return reinterpret_cast<vec<F>>(_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p));
#elif defined(__AVX2__)
  if constexpr (sizeof(F) == 4)
    return reinterpret_cast<vec<F>>(_mm256_maskload_ps(p, first_lanes<F>(n)));
  else
    return reinterpret_cast<vec<F>>(_mm256_maskload_pd(p, first_lanes<F>(n)));
#else
  F whole[Vec<F>::size] = {};
  for (int i = 0; i < n; i++) whole[i] = p[i];
  return load<F>(whole);
#endif
}

template <class F>
GFRNN_INLINE void store_some(F* p, vec<F> v, int n) {
#if defined(__AVX512F__)
  if constexpr (sizeof(F) == 4)
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), reinterpret_cast<__m512>(v));
  else
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), reinterpret_cast<__m512d>(v));
#elif defined(__AVX2__)
  // Not with a mask: some CPUs take a dozen cycles for that store.
  __m128i part = _mm256_castsi256_si128(reinterpret_cast<__m256i>(v));
  char* to = reinterpret_cast<char*>(p);
  const int bytes = n * static_cast<int>(sizeof(F));
  if (bytes == 32) return store<F>(p, v);
  if (bytes & 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), part);
    part = _mm256_extracti128_si256(reinterpret_cast<__m256i>(v), 1);
    to += 16;
  }
  if (bytes & 8) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), part);
    part = _mm_unpackhi_epi64(part, part);
    to += 8;
  }
  if (bytes & 4) {
    const int last = _mm_cvtsi128_si32(part);
    std::memcpy(to, &last, sizeof last);  // _mm_storeu_si32 is not in GCC 10
  }
#else
  F whole[Vec<F>::size];
  store<F>(whole, v);
  for (int i = 0; i < n; i++) p[i] = whole[i];
#endif
}

// A position in a row of n elements: all of a vector, or what is left of it at the end.
template <class F>
struct Lane {
  int64_t at;
  int count;  // Vec::size, or fewer at the end
  GFRNN_INLINE vec<F> get(const F* p) const {
    return count == Vec<F>::size ? load<F>(p + at) : load_some<F>(p + at, count);
  }
  GFRNN_INLINE void put(F* p, vec<F> v) const {
    if (count == Vec<F>::size)
      store<F>(p + at, v);
    else
      store_some<F>(p + at, v, count);
  }
};

template <class F, class Body>
GFRNN_INLINE void for_lanes(int64_t n, Body body) {
  int64_t at = 0;
  for (; at + Vec<F>::size <= n; at += Vec<F>::size) body(Lane<F>{at, Vec<F>::size});
  if (at < n) body(Lane<F>{at, static_cast<int>(n - at)});
}

// Halves are added until one number is left: a chain of additions would take four times as long.
template <class F>
GFRNN_INLINE F sum(vec<F> v) {
  F parts[Vec<F>::size];
  store<F>(parts, v);
#pragma GCC unroll 4
  for (int half = Vec<F>::size / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < half; i++) parts[i] += parts[i + half];
  return parts[0];
}

// Of two rows: the first one's lanes with bit S set change places with the second one's lanes S before them.
template <class F, int S, int... LANE>
GFRNN_INLINE void exchange(vec<F>& a, vec<F>& b, std::integer_sequence<int, LANE...>) {
  constexpr int VL = Vec<F>::size;
#if __has_builtin(__builtin_shufflevector)
  const vec<F> first = __builtin_shufflevector(a, b, (LANE & S ? VL + LANE - S : LANE)...);
  const vec<F> second = __builtin_shufflevector(a, b, (LANE & S ? VL + LANE : LANE + S)...);
#else
  const vec<F> first = {(LANE & S ? b[LANE - S] : a[LANE])...}, second = {(LANE & S ? b[LANE] : a[LANE + S])...};
#endif
  a = first;
  b = second;
}

// A square of Vec::size rows becomes its columns.
template <class F, int S = 1>
GFRNN_INLINE void transpose(vec<F> (&rows)[Vec<F>::size]) {
  if constexpr (S < Vec<F>::size) {
#pragma GCC unroll 16
    for (int i = 0; i < Vec<F>::size; i++)
      if (!(i & S)) exchange<F, S>(rows[i], rows[i + S], std::make_integer_sequence<int, Vec<F>::size>{});
    transpose<F, 2 * S>(rows);
  }
}

// Between low and high; NaN stays NaN.
template <class F>
GFRNN_INLINE vec<F> clamped(vec<F> x, F low, F high) {
  const vec<F> lows = broadcast<F>(low), highs = broadcast<F>(high);
#if defined(__AVX512F__)  // of two numbers that cannot be compared these give the second
  if constexpr (sizeof(F) == 4) {
    const __m512 y = _mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(highs), reinterpret_cast<__m512>(x));
    return reinterpret_cast<vec<F>>(_mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(lows), y));
  }
#endif
  const vec<F> y = x > highs ? highs : x;
  return y < lows ? lows : y;
}

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2, e^r - 1 by its Taylor series to the last bit of the type.
// x is clamped so that 2^n is a normal number; NaN stays NaN.
template <class V>
struct Exponential {
  V e_r_less_1, two_to_n;
};

GFRNN_INLINE Exponential<vec<float>> split_exp(vec<float> x) {
  typedef Vec<float>::ints ints;
  const vec<float> y = clamped(x, -87.0f, 80.0f);  // 1 / e^80 is a normal number
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to an integer
  const vec<float> n = (y * 1.44269504088896341f + magic) - magic;
  vec<float> r = y - n * 0.693359375f;  // ln 2 in two parts
  r = r + n * 2.12194440e-4f;
  vec<float> p = broadcast<float>(1.0f) / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  const ints power = (__builtin_convertvector(n, ints) + 127) << 23;
  return {p * r, reinterpret_cast<vec<float>>(power)};
}

GFRNN_INLINE Exponential<vec<double>> split_exp(vec<double> x) {
  typedef Vec<double>::ints ints;
  const vec<double> y = clamped(x, -708.0, 709.0);
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  const vec<double> n = (y * 1.4426950408889634074 + magic) - magic;
  vec<double> r = y - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  vec<double> p = broadcast<double>(1.0) / 6227020800.0;
  const double inverse_factorials[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                       1.0 / 5040,      1.0 / 720,      1.0 / 120,     1.0 / 24,     1.0 / 6,
                                       0.5,             1.0};
  for (double c : inverse_factorials) p = p * r + c;
  const ints power = (__builtin_convertvector(n, ints) + 1023) << 52;
  return {p * r, reinterpret_cast<vec<double>>(power)};
}

template <class V>
GFRNN_INLINE V exp_v(V x) {
  const auto e = split_exp(x);
  return e.e_r_less_1 * e.two_to_n + e.two_to_n;
}

template <class V>
GFRNN_INLINE V divide(V a, V b) {
  return a / b;
}

#if defined(__AVX512F__)
// A third of the time of the instruction: a reciprocal to 14 bits, improved once, and the quotient corrected once.
GFRNN_INLINE vec<float> divide(vec<float> a, vec<float> b) {
  vec<float> y = reinterpret_cast<vec<float>>(_mm512_maskz_rcp14_ps(0xffff, reinterpret_cast<__m512>(b)));
  y = y + y * (1 - b * y);
  const vec<float> q = a * y;
  return q + y * (a - b * q);
}
#endif

template <class V>
GFRNN_INLINE V sigmoid_v(V x) {
  return divide(1 - V{}, 1 + exp_v(-x));
}

// (1 - e^-2x) / (1 + e^-2x), from e^-2x - 1: nothing cancels near 0. Saturates, as the clamped exponential is finite.
template <class V>
GFRNN_INLINE V tanh_v(V x) {
  const auto e = split_exp(-2 * x);
  const V less_1 = e.e_r_less_1 * e.two_to_n + (e.two_to_n - 1);
  return divide(-less_1, 2 + less_1);
}

}  // namespace
